from tests.doctor.causes.judge import first_is, verdict_is

test_what_the_loader_says_names_the_cause = first_is([
    ("library_path_shadows_bundled", "ImportError: /venv/lib/python3.11/site-packages/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12"),
    ("library_path_shadows_bundled", "libtorch_cuda.so: undefined symbol: ncclCommWindowRegister"),
    ("bundled_cuda_library_missing", '  File "/venv/lib/python3.12/site-packages/torch/__init__.py", line 405, in <module>\n    from torch._C import *\nImportError: libcudnn.so.9: cannot open shared object file: No such file or directory'),
    ("bundled_cuda_library_missing", "Could not load library libcudnn_cnn_train.so.8. Error: libcudnn_cnn_train.so.8: cannot open"),
    ("bundled_cuda_library_missing", "ValueError: libcublas.so.*[0-9] not found in the system path ['/home/me/project']"),
    ("extension_built_for_other_cuda", '  File "/venv/lib/python3.10/site-packages/flash_attn/__init__.py", line 3, in <module>\nImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory'),
    ("extension_torch_abi_mismatch", "ImportError: /opt/conda/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN2at4_ops5zeros4callEN3c108ArrayRefINS2_6SymIntEEE"),
    ("extension_torch_abi_mismatch", "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n    PyTorch 2.3.0+cu121 with CUDA 1201 (you have 2.4.0+cu121)"),
    ("extension_missing_arch", "Error no kernel image is available for execution on the device at line 167 in file /mmfs1/gscratch/bitsandbytes/csrc/ops.cu"),
    ("extension_torch_abi_mismatch", "ImportError: mamba_ssm/selective_scan_cuda.so undefined symbol _ZN3c104cuda9SetDeviceEi"),
])  # fmt: skip
test_what_is_well_is_healthy = verdict_is(("healthy",), [
    "PyTorch version: 2.1.0+cu118\nIs CUDA available: True\nGPU models and configuration: GPU 0: Tesla V100\nNvidia driver version: 525.60.13\ncuDNN version: Probably one of the following:\n/usr/lib/x86_64-linux-gnu/libcudnn.so.8.2.0\n/usr/local/cuda-11.4/targets/x86_64-linux/lib/libcudnn.so.8.4.1\n",  # a system cudnn beside a working torch is no fault
])  # fmt: skip
