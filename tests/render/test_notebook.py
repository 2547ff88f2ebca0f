import sys
import types

import pytest

from gpudoc.render import console
from gpudoc.render.notebook import Notebook, frame, is_notebook


@pytest.fixture
def cell(monkeypatch):
    """What IPython would show: a list of the drawings of one cell."""
    shown = []

    class Handle:
        def update(self, drawing):
            shown.append(drawing)

    def display(drawing, display_id):
        shown.append(drawing)
        return Handle()

    module = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=module, get_ipython=lambda: None))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def test_progress_is_drawn_over_in_one_place_and_the_bar_goes_at_the_end(cell):
    notebook = Notebook()
    notebook.say("measuring <the> CPU")
    notebook.advance(3, 12, "round 1: copies")
    notebook.close()
    assert "measuring &lt;the&gt; CPU" in cell[0]
    assert '<progress value="3.000" max="12.000"' in cell[1]
    assert "round 1: copies, about 9 s left" in cell[1]
    assert "<progress" not in cell[2]
    assert "measuring" in cell[2]


def test_old_lines_give_way(cell):
    notebook = Notebook()
    for number in range(30):
        notebook.say(f"line {number}.")
    assert "line 29." in cell[-1]
    assert "line 3." not in cell[-1]


def test_a_terminal_is_no_notebook(monkeypatch, cell):
    assert not is_notebook()
    shell = types.SimpleNamespace(kernel=None)
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    assert not is_notebook()
    shell.kernel = object()
    assert is_notebook()


def test_a_page_stays_inside_its_frame():
    assert frame('<p class="x">a</p>').startswith(
        '<iframe sandbox="allow-scripts" srcdoc="&lt;p class=&quot;x&quot;&gt;a&lt;/p&gt;" style="'
    )


def test_nothing_said_draws_nothing(cell):
    Notebook().close()
    assert cell == []


def test_a_screen_goes_to_the_stream_also_in_a_notebook(monkeypatch, capsys):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    console.stdout().print("a line")
    assert capsys.readouterr().out == "a line\n"
