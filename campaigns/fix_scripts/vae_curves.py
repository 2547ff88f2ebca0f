# VAE on random smooth curves. Optimiser written out by hand to try a warm restart of the moments.
import math
import torch

torch.manual_seed(314)

n_curves = 4000
length = 256
latent = 12
width = 512
batch = 128
steps = 1500
lr = 1e-3
beta1, beta2, eps = 0.9, 0.999, 1e-8

t = torch.linspace(0, 1, length)
amp = torch.randn(n_curves, 5) / torch.arange(1, 6)
phase = 2 * math.pi * torch.rand(n_curves, 5)
curves = torch.zeros(n_curves, length)
for k in range(5):
    curves += amp[:, k:k + 1] * torch.sin(2 * math.pi * (k + 1) * t + phase[:, k:k + 1])
curves = (curves - curves.mean()) / curves.std()


def layer(n_in, n_out):
    w = (torch.randn(n_in, n_out) / math.sqrt(n_in)).requires_grad_()
    b = torch.zeros(n_out, requires_grad=True)
    return [w, b]


enc1 = layer(length, width)
enc2 = layer(width, width)
enc3 = layer(width, 2 * latent)
dec1 = layer(latent, width)
dec2 = layer(width, width)
dec3 = layer(width, length)
params = enc1 + enc2 + enc3 + dec1 + dec2 + dec3
m = [torch.zeros_like(p) for p in params]
v = [torch.zeros_like(p) for p in params]


def elbo(x, beta):
    h = torch.nn.functional.silu(torch.addmm(enc1[1], x, enc1[0]))
    h = torch.nn.functional.silu(torch.addmm(enc2[1], h, enc2[0]))
    mu, logvar = torch.addmm(enc3[1], h, enc3[0]).chunk(2, dim=1)
    z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
    h = torch.nn.functional.silu(torch.addmm(dec1[1], z, dec1[0]))
    h = torch.nn.functional.silu(torch.addmm(dec2[1], h, dec2[0]))
    rec = torch.addmm(dec3[1], h, dec3[0])
    recon = (rec - x).pow(2).sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return recon, kl, recon + beta * kl


order = torch.randperm(n_curves)
cursor = 0
since_restart = 0
for step in range(1, steps + 1):
    if cursor + batch > n_curves:
        order = torch.randperm(n_curves)
        cursor = 0
    x = curves[order[cursor:cursor + batch]]
    cursor += batch

    recon, kl, loss = elbo(x, min(1.0, step / 200))
    grads = torch.autograd.grad(loss, params)

    since_restart += 1
    with torch.no_grad():
        torch._foreach_lerp_(m, grads, 1 - beta1)
        torch._foreach_mul_(v, beta2)
        torch._foreach_addcmul_(v, grads, grads, value=1 - beta2)
        c1 = 1 - beta1 ** since_restart
        c2 = math.sqrt(1 - beta2 ** since_restart)
        denom = torch._foreach_sqrt(v)
        torch._foreach_div_(denom, c2)
        torch._foreach_add_(denom, eps)
        torch._foreach_addcdiv_(params, m, denom, value=-lr / c1)

    if step == 750:
        torch._foreach_zero_(m)
        torch._foreach_zero_(v)
        since_restart = 0
        lr = lr / 3
    if step % 250 == 0:
        print(f"step {step:4d}  recon {recon.item():9.4f}  kl {kl.item():8.4f}")
