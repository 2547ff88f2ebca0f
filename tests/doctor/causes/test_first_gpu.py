from tests.doctor.causes.judge import first_is

test_what_fills_the_first_gpu_is_named = first_is([
    ("extra_contexts_on_gpu0", "torchrun with 4 ranks: there are three additional processes of 500 MB each on GPU 0"),
    ("extra_contexts_on_gpu0", "pl.Trainer(strategy='ddp', devices=[2, 3]) starts processes on the unused GPUs too, each with a little memory"),
    ("extra_contexts_on_gpu0", "DDP: several processes sit on gpu 0, they take 3 GB of it and rank 0 ends with CUDA out of memory, sometimes"),
    ("extra_contexts_on_gpu0", "with torchrun, when I resume from the .pt file, the memory of GPU0 is much higher than before"),
    ("extra_contexts_on_gpu0", "torch.load in each process restores to cuda:0: extra memory on cuda:0 in DDP training"),
])  # fmt: skip
