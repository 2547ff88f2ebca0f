"""gpudoc as on a machine of its own: what others disturb would be measured anew, and no two searches be the same."""

from gpudoc.cli.app import main
from gpudoc.tune.trial.messages import Trial

if __name__ == "__main__":
    Trial.is_disturbed = property(lambda _trial: False)
    main()
