# DCGAN on tiny ring pictures, from the pytorch examples repo with the parts I dont need removed
import torch
import torch.nn as nn
import torch.optim as optim

manualSeed = 999
torch.manual_seed(manualSeed)

batchSize = 64
imageSize = 32
nz = 64
ngf = 32
ndf = 24
niter = 160
lr = 0.0002
beta1 = 0.5


def real_images(n):
    r = torch.linspace(-1, 1, imageSize)
    yy, xx = torch.meshgrid(r, r, indexing="ij")
    cx = torch.rand(n, 1, 1) * 0.6 - 0.3
    cy = torch.rand(n, 1, 1) * 0.6 - 0.3
    rad = torch.rand(n, 1, 1) * 0.3 + 0.3
    dist = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
    ring = torch.exp(-((dist - rad) ** 2) / 0.008)
    color = torch.rand(n, 3, 1, 1)
    return ring[:, None] * color * 2 - 1


# custom weights initialization called on netG and netD
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


netG = nn.Sequential(
    # input is Z, going into a convolution
    nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 4),
    nn.ReLU(True),
    # (ngf*4) x 4 x 4
    nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    # (ngf*2) x 8 x 8
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    # (ngf) x 16 x 16
    nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netG.apply(weights_init)

netD = nn.Sequential(
    nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ndf * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ndf * 4),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 4, 1, 4, 1, 0, bias=False),
    nn.Flatten(0),
)
netD.apply(weights_init)

criterion = nn.BCEWithLogitsLoss()
real_label = torch.ones(batchSize)
fake_label = torch.zeros(batchSize)

optimizerD = optim.Adam(netD.parameters(), lr=lr, betas=(beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=lr * 2, betas=(beta1, 0.999))

for i in range(1, niter + 1):
    # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    errD_real = criterion(netD(real_images(batchSize)), real_label)
    errD_real.backward()
    noise = torch.randn(batchSize, nz, 1, 1)
    fake = netG(noise)
    errD_fake = criterion(netD(fake.detach()), fake_label)
    errD_fake.backward()
    optimizerD.step()

    # (2) Update G network: maximize log(D(G(z)))
    netG.zero_grad()
    netD.requires_grad_(False)
    errG = criterion(netD(fake), real_label)
    errG.backward()
    netD.requires_grad_(True)
    optimizerG.step()

    if i % 20 == 0:
        errD = (errD_real + errD_fake).item()
        print("[%d/%d] Loss_D: %.4f Loss_G: %.4f" % (i, niter, errD, errG.item()))
