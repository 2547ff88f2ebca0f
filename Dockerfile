# gpudoc on a machine with an NVIDIA GPU: the whole flow on the built-in quickstart.
# Written for Docker with the NVIDIA container toolkit. What has been run of it: every step, by buildah with chroot isolation
# on a Debian 12 in place of python:3.12-slim, with PyTorch's CPU build; in it doctor and the start of the demo, as `user`.
# Not run: the base image itself, a GPU in the container, --gpus.
#
#   docker build -t gpudoc .
#   docker run --rm --gpus all --shm-size=8g gpudoc                          # doctor, bench, tune, train
#   docker run --rm --gpus all --shm-size=8g -v "$PWD:/work" gpudoc gpudoc doctor
#
# --shm-size: Docker's 64 MiB of /dev/shm is too small for loader workers.
FROM python:3.12-slim

RUN useradd --create-home user
WORKDIR /opt/gpudoc
COPY pyproject.toml README.md LICENSE ./
COPY gpudoc gpudoc
COPY profiles profiles
COPY tools tools

# torch comes with its own CUDA libraries; the driver is the host's, handed in by the container toolkit
RUN pip install --no-cache-dir ".[train]"

USER user
WORKDIR /home/user
CMD ["python", "/opt/gpudoc/tools/demo.py"]
