import pytest

from tests.train.ranks.forked import Forked


@pytest.fixture(scope="session")
def forked():
    """Runs scripts in ranks that have torch when they begin."""
    forked = Forked()
    yield forked
    forked.close()
