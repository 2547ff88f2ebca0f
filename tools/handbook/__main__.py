"""Build the handbook: the pages of docs/, one per cause, command and row, as a site that needs no network.

    python -m tools.handbook [--out build/handbook]     # needs the extra: pip install -e '.[docs]'
    python -m tools.handbook --check                    # links and orphans only; needs nothing but gpudoc

Open FOLDER/site/index.html in a browser; the search works from the disk as well.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tools.handbook.agents import write_agents
from tools.handbook.site import broken_links, collect_pages, foreign_parts, orphans, write_sources


def main() -> int:
    """Check the pages, build the site, check what was built; returns 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/handbook"), metavar="FOLDER")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    pages = collect_pages()
    wrong = [f"a link leads nowhere: {link}" for link in broken_links(pages)]
    wrong += [f"no page leads to {place}" for place in orphans(pages)]
    if not wrong and not options.check:
        shutil.rmtree(options.out, ignore_errors=True)
        config = write_sources(options.out, pages)
        # strict: what the generator warns of, as a heading that a link names and that is not there, is an error
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(config)]
        if subprocess.run(command, check=False).returncode:
            wrong.append("zensical did not build the site; is it installed? pip install -e '.[docs]'")
        else:
            write_agents(options.out / "site", pages)
            wrong += [f"taken from another site: {part}" for part in foreign_parts(options.out / "site")]
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"{len(pages)} pages, all linked" + ("" if options.check else f": {options.out}/site/index.html"))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
