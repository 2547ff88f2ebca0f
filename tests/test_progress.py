from gpudoc.progress import SILENT, Progress


def test_the_silent_observer_is_an_observer_and_says_nothing(capsys):
    observer: Progress = SILENT
    observer.say("trial 3")
    observer.advance(1, 2, "half")
    assert capsys.readouterr() == ("", "")
