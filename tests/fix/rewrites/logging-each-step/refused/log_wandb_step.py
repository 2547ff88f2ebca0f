# hot `wandb.log` 0.5 -> refused: `next` in it does more than logging
import wandb, torch
for step, x in enumerate(torch.randn(10, 4)):
    loss = x.mean()
    wandb.log({"loss": loss.item(), "lr": next(iter([1]))})
