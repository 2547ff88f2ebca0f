"""gpudoc as on a machine of its own: what others disturb would be measured anew, and no two searches be the same."""

import atexit
import sys

from gpudoc.cli.app import main
from gpudoc.tune.trial.messages import Trial

if __name__ == "__main__":
    Trial.is_disturbed = property(lambda _trial: False)
    # its trials need torch; the search would only wait for it
    atexit.register(lambda: "torch" in sys.modules and print("the search imported torch", file=sys.stderr))
    main()
