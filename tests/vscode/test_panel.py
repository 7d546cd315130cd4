"""The panel, through the interface: a user's mouse and keys in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lsp.workspaces import CODE, record, workspace
from tests.vscode.code_server import wait
from tests.vscode.test_extension import OPEN, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import FrameLocator, Locator

    from tests.vscode.code_server import CodeServer


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace(tmp_path_factory.mktemp("shared") / "ws")


@pytest.fixture(scope="module")
def code(code_server: Callable[..., CodeServer], script: Path) -> CodeServer:
    """Return one that shows the script, and beside it the panel."""
    found = code_server(script.parent)
    told(found, script, "")
    found.press("pyprof2: Show Breakdown")
    rows(found).first.wait_for()
    return found


@pytest.fixture(autouse=True)
def _from_the_top(code: CodeServer) -> None:
    """Begin each test where the panel shows all files."""
    panel(code).get_by_role("button", name="all files").click()
    panel(code).locator(".row.file").first.wait_for()


def panel(code: CodeServer) -> FrameLocator:
    return code.page.frame_locator("iframe.webview").first.frame_locator("iframe").first


def rows(code: CodeServer) -> Locator:
    return panel(code).locator(".row")


def drill_down(code: CodeServer, *names: str) -> None:
    """Double-click a row, and one of what comes then, and so on."""
    from playwright.sync_api import expect

    for name in names:
        rows(code).filter(has_text=name).first.dblclick()
        crumb = panel(code).locator(".crumb[aria-current]")
        expect(crumb).to_contain_text(name)
        rows(code).first.wait_for()
        code.page.wait_for_timeout(500)


def texts(code: CodeServer) -> list[list[str]]:
    """Return name, detail and numbers of each row."""
    return [
        [part.inner_text() for part in row.locator(".name, .detail, .number").all()]
        for row in rows(code).all()
    ]


def test_bars_are_as_long_as_the_shares_and_a_double_click_drills_down(code: CodeServer) -> None:
    top = texts(code)
    drill_down(code, "train.py", "Block", "Block.forward")

    assert top == [["train.py", "3 op calls", "0.802 ms · 100.0 %", "3 MB · 100.0 %"]]
    assert texts(code) == [
        ["7: y = self.up(x) # 😀", "1 op call", "0.7 ms · 87.3 %", "3 MB · 100.0 %"],
        ["8: return self.down(y)", "1 op call", "0.1 ms · 12.5 %"],
    ]
    times = panel(code).locator(".bar.time")
    shares = [_share(bar) for bar in times.all()]
    assert shares == [pytest.approx(100 * ns / 802, abs=0.5) for ns in (700, 100)]
    drill_down(code, "self.up")
    assert texts(code) == [["aten::relu", "1 op call, blocks.0", "0.7 ms · 87.3 %"]]
    panel(code).get_by_role("button", name="Block", exact=True).click()
    wait(lambda: [row[0] for row in texts(code)] == ["Block.forward"])


def _share(bar: Locator) -> float:
    whole, part = (each.bounding_box() for each in (bar, bar.locator(".part")))
    assert whole
    assert part
    return 100 * part["width"] / whole["width"]


def test_a_row_leads_to_its_line_and_a_line_to_its_row(code: CodeServer, script: Path) -> None:
    drill_down(code, "train.py", "Block", "Block.forward")
    down = rows(code).filter(has_text="self.down")

    down.hover()
    wait(lambda: lit(code) == ["return self.down(y)"])
    panel(code).locator(".title").hover()
    wait(lambda: lit(code) == [])
    down.click()
    line = "return vscode.window.visibleTextEditors[0].selection.active.line;"
    wait(lambda: code.run(line) == 7)
    assert marked(code) == ["8: return self.down(y)"]
    # From the code: the cursor in a line, and the mouse over one.
    code.run(f"""{OPEN}
        const at = new vscode.Position(6, 0);
        vscode.window.visibleTextEditors[0].selection = new vscode.Selection(at, at);""",
        path=str(script))  # fmt: skip
    wait(lambda: [name.split(":")[0] for name in marked(code)] == ["7"])
    code.page.locator(".view-line", has_text="self.down").first.hover()
    wait(lambda: marked(code) == ["8: return self.down(y)"])
    # What the mouse has shown goes, or it would lie over the panel.
    code.page.mouse.move(700, 790)
    code.page.wait_for_selector(".monaco-hover .hover-row", state="hidden")


def lit(code: CodeServer) -> list[str]:
    """Return the lines of code that are marked: those at the height of a decoration."""
    page = code.page
    found = []
    # All at once: one may go while the next is looked at.
    marks = page.locator(".view-overlays [class*='ced-'][class*='TextEditorDecoration']")
    for top in marks.evaluate_all("all => all.map(one => one.getBoundingClientRect().y)"):
        for line in page.locator(".view-line").all():
            place = line.bounding_box()
            if place and abs(place["y"] - top) < 3:
                found.append(" ".join(line.inner_text().split()).partition("0.")[0].strip())
    return found


def marked(code: CodeServer) -> list[str]:
    return panel(code).locator(".row.here .name").all_inner_texts()


def test_keys_do_what_the_mouse_does(code: CodeServer) -> None:
    keys = code.page.keyboard
    rows(code).first.focus()

    for key in ("ArrowRight", "ArrowDown", "ArrowRight"):
        keys.press(key)
        code.page.wait_for_timeout(1500)
    names = [row[0] for row in texts(code)]
    keys.press("Backspace")
    wait(lambda: [row[0] for row in texts(code)] == ["main", "Block"])

    assert names == ["Block.forward"]


def test_rows_follow_edits_and_new_recordings(code: CodeServer, script: Path) -> None:
    drill_down(code, "train.py", "main")
    before = texts(code)
    edit = "await vscode.window.visibleTextEditors[0].edit((edit) => {});".format
    told(code, script, edit('edit.insert(new vscode.Position(0, 0), "# one\\n")'))
    wait(lambda: texts(code)[0][0] == "14: loss = net(x)")
    told(code, script, edit("edit.delete(new vscode.Range(0, 0, 1, 0))"))
    wait(lambda: texts(code)[0][0] == "13: loss = net(x)")
    record(script.parent, script, "twice", slower=2)

    assert before[0][:1] + before[0][2:] == ["13: loss = net(x)", "0.8 ms · 99.8 %"]
    wait(lambda: texts(code)[0][0::2] == ["13: loss = net(x)", "1.6 ms · 99.8 %"])
    # As it was, for the tests after this one.
    record(script.parent, script, "twice")
    wait(lambda: texts(code)[0][0::2] == ["13: loss = net(x)", "0.8 ms · 99.8 %"])


def test_the_page_asked_nobody_but_the_server_for_anything(code: CodeServer) -> None:
    # A name of the browser's own: the page's service worker answers for it, from the server.
    own = ".vscode-resource.vscode-cdn.net"
    others = {host for host in code.hosts if not host.endswith(own)}
    assert others - {"blob", "data"} <= {"127.0.0.1"}


def test_what_a_recording_says_is_text_and_no_html(
    code_server: Callable[..., CodeServer], tmp_path: Path
) -> None:
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    script = workspace(folder / "ws", name="<b>a.py")
    found = code_server(script.parent)
    told(found, script, "")
    found.press("pyprof2: Show Breakdown")
    rows(found).first.wait_for()

    assert texts(found)[0][0] == "<b>a.py"
    assert script.read_text() == CODE
