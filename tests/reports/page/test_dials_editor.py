"""The page with the dials, served by `pyprof2 lsp`: the code changes when a dial is let go."""

from __future__ import annotations

import http.client
import json
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.dialled import CODE, named, workspace
from tests.reports.page.dialler import Dialler

pytest.importorskip("pygls")

from tests.lsp.editor import Editor, processes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

ENDS = "\r\n"
PAUSE_S = 0.6
"""Keys within this time are one change: `PAUSE` in `web/dials/dial.js`."""


class Session(NamedTuple):
    """An editor with the script open, and its state."""

    editor: Editor
    script: Path
    state: Path


def opened_in(folder: Path, **options: Any) -> Session:
    """Return an editor with the script of a new workspace open."""
    script = workspace(folder / "ws", ends=ENDS)
    options = {"batches": named(), "recording": "b32.pyprof2"} | options
    editor = Editor("neovim-0.12.4", script.parent, folder / "state", **options)
    editor.tells = True
    editor.open(script)
    editor.wait(lambda: editor.run("state")["batch"] == 32)
    return Session(editor, script, folder / "state")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    session = opened_in(tmp_path_factory.mktemp("served"))
    yield session
    session.editor.shut()


@pytest.fixture
def session(started: Session) -> Iterator[Session]:
    """Return the editor with the script as it was recorded."""
    editor = started.editor
    editor.close()
    editor.refuses = False
    editor.open(started.script)
    editor.wait(lambda: editor.run("batchSizes")["places"])
    yield started
    assert [each for each in editor.said if "rror" in each] == []


@pytest.fixture
def dial(chromium: Browser, session: Session) -> Iterator[Callable[..., Dialler]]:
    """Return a function that opens the page as the command says it."""
    contexts = []

    def opened(**options: Any) -> Dialler:
        address = session.editor.run("dials", {"open": False})["url"]
        size = {"width": 1280, "height": 900}
        contexts.append(chromium.new_context(**{"viewport": size} | options))
        return Dialler(contexts[-1], address)

    yield opened
    for context in contexts:
        context.close()


def changed(session: Session, number: int, was: str = "= 32") -> str:
    """Return the script with another number, and nothing else changed."""
    return session.script.read_bytes().decode().replace(was, f"= {number}")


def test_a_drag_changes_exactly_the_literal_once_it_is_let_go(
    session: Session, dial: Callable[..., Dialler]
) -> None:
    editor, page = session.editor, dial()
    before = editor.text
    assert (page.batch, page.refusal) == (32, "")

    page.grab("memory", up=60)
    assert page.batch > 40
    assert editor.edits == []
    page.drop()

    editor.wait(lambda: editor.edits)
    assert editor.text == before.replace("= 32", f"= {page.batch}")
    assert len(editor.edits) == 1
    (change,) = editor.edits[0].document_changes or []
    assert change.text_document.version == 1  # type: ignore[union-attr]
    assert page.faults == []


def test_a_second_drag_and_an_undo_are_followed(
    session: Session, dial: Callable[..., Dialler]
) -> None:
    editor, page = session.editor, dial()
    page.grab("memory", up=40)
    page.drop()
    first = editor.wait(lambda: editor.edits and page.batch)
    page.wait_free()

    page.grab("throughput", up=-60)
    page.drop()
    editor.wait(lambda: len(editor.edits) == 2)

    assert page.batch != first
    assert editor.text == changed(session, page.batch)
    editor.replace(f"= {page.batch}", f"= {first}")
    page.wait_batch(first)
    assert page.refusal == ""


def test_keys_are_one_change_after_a_pause(session: Session, dial: Callable[..., Dialler]) -> None:
    editor, page = session.editor, dial()

    page.press("throughput", "ArrowUp", "ArrowUp", "PageUp", "ArrowDown")
    assert page.batch == 43
    editor.wait(lambda: editor.edits)

    time.sleep(2 * PAUSE_S)
    assert len(editor.edits) == 1
    assert editor.text == changed(session, 43)


def test_escape_and_a_lost_pointer_change_nothing(
    session: Session, dial: Callable[..., Dialler]
) -> None:
    editor, page = session.editor, dial()

    page.grab("memory", up=60)
    page.page.keyboard.press("Escape")
    page.drop()
    page.press("memory", "PageUp", "Escape")
    page.grab("memory", up=60)
    page.page.evaluate(
        "document.querySelectorAll('.dial')[1].dispatchEvent(new PointerEvent('pointercancel'))"
    )
    page.drop()
    time.sleep(2 * PAUSE_S)

    assert (page.batch, editor.edits, editor.text) == (32, [], changed(session, 32))


def test_what_the_editor_refuses_puts_the_dials_back(
    session: Session, dial: Callable[..., Dialler]
) -> None:
    editor, page = session.editor, dial()
    editor.refuses = True

    page.grab("memory", up=60)
    page.drop()

    page.wait_batch(32)
    assert page.page.inner_text("#status") == "train.py:2: not changed: text changed"
    assert editor.text == changed(session, 32)


def test_a_number_that_was_typed_is_followed_and_read_only(
    session: Session, dial: Callable[..., Dialler]
) -> None:
    editor, page = session.editor, dial()

    editor.replace("= 32", "= 48")

    page.page.wait_for_selector("#refusal")
    assert page.batch == 48
    assert page.refusal == (
        "Read-only: it is 48, and the recording that is shown, b32.pyprof2, has a batch of 32: it "
        "was changed since, or something else says it when the program runs"
    )
    page.grab("memory", up=60)
    page.drop()
    time.sleep(2 * PAUSE_S)
    assert (page.batch, editor.edits) == (48, [])
    editor.replace("= 48", "= 32")
    page.wait_free()
    assert page.batch == 32


def test_of_several_places_one_is_chosen_on_the_page_and_remembered(
    session: Session, dial: Callable[..., Dialler]
) -> None:
    editor = session.editor
    editor.close()
    text = "batch_size = 32\nBS = 32\nbsz = 2 * 16\n"
    editor.open(session.script, text)
    editor.run("batchSizes")
    page = dial()
    assert page.refusal == "Read-only: choose which of these is the batch size"
    page.press("memory", "ArrowUp")
    assert page.batch == 32

    page.page.select_option("#place", "1")
    page.wait_free()
    page.press("memory", "ArrowUp", "Enter")

    editor.wait(lambda: editor.edits)
    assert editor.text == text.replace("BS = 32", "BS = 33")
    chosen = [place["chosen"] for place in editor.run("batchSizes")["places"]]
    assert chosen == [False, True, False]


def test_a_page_whose_editor_is_gone_does_not_move(tmp_path: Path, chromium: Browser) -> None:
    session = opened_in(tmp_path)
    context = chromium.new_context()
    page = Dialler(context, session.editor.run("dials", {"open": False})["url"])

    session.editor.shut()

    page.page.wait_for_selector("#refusal", timeout=30_000)
    assert page.refusal.startswith("Read-only: the editor does not answer")
    context.close()


# -- what may ask --------------------------------------------------------------------------------


class Asked(NamedTuple):
    """An answer."""

    code: int
    text: str
    headers: dict[str, str]


class Attacker:
    """Who knows the port, and perhaps the word."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        assert parts.hostname == "127.0.0.1"
        self.port = parts.port or 0
        self.token = parts.fragment.partition("t=")[2]

    def ask(
        self, headers: dict[str, str | None] | None = None, method: str = "POST", path: str = "/ask"
    ) -> Asked:
        """Send a request of our own page, but for the headers that are given; None: without."""
        body = b'{"ask": "state"}'
        own = {
            "Host": f"127.0.0.1:{self.port}", "Origin": f"http://127.0.0.1:{self.port}",
            "Content-Type": "application/json", "X-Pyprof2-Token": self.token,
            "Sec-Fetch-Site": "same-origin", "Content-Length": str(len(body)),
        }  # fmt: skip
        wanted = own | (headers or {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in wanted.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        found = connection.getresponse()
        return Asked(found.status, found.read().decode(), dict(found.getheaders()))


@pytest.fixture
def attacker(session: Session) -> Attacker:
    return Attacker(session.editor.run("dials", {"open": False})["url"])


def test_our_own_page_is_answered(attacker: Attacker) -> None:
    found = attacker.ask()

    assert found.code == 200
    assert json.loads(found.text)["code"]["places"][0]["value"] == 32


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD", "PUT"])
@pytest.mark.parametrize("host", ["evil.test", "localhost", "127.0.0.1", "evil.test:PORT", None])
def test_another_host_is_refused_first_whatever_else_is_right(
    attacker: Attacker, method: str, host: str | None
) -> None:
    name = host and host.replace("PORT", str(attacker.port))

    found = attacker.ask({"Host": name, "Origin": None, "Sec-Fetch-Site": None}, method, "/")

    assert (found.code, found.text) == (
        403,
        "" if method == "HEAD" else "another host was asked for",
    )


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": None}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"X-Pyprof2-Token": None}, 401),
        ({"X-Pyprof2-Token": ""}, 401),
        ({"X-Pyprof2-Token": "x" * 43}, 401),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": None}, 415),
        ({"Content-Length": "99999999"}, 400),
    ],
)
def test_a_request_of_others_is_refused(
    attacker: Attacker, headers: dict[str, str | None], code: int
) -> None:
    assert attacker.ask(headers).code == code


def test_no_answer_lets_other_sites_read_it_and_no_socket_is_upgraded(attacker: Attacker) -> None:
    upgrade: dict[str, str | None] = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip

    page = attacker.ask(upgrade, "GET", "/")
    foreign = attacker.ask(upgrade | {"Origin": "http://evil.test"}, "GET", "/")
    options = attacker.ask({"Origin": "http://evil.test"}, "OPTIONS")

    assert (page.code, foreign.code, options.code) == (200, 403, 403)
    for found in (page, foreign, options, attacker.ask()):
        assert not [name for name in found.headers if name.lower().startswith("access-control")]
        assert found.headers["Referrer-Policy"] == "no-referrer"
        assert found.headers["X-Frame-Options"] == "DENY"
    # The page has no numbers of anybody, and no word.
    assert "train.py" not in page.text
    assert attacker.token not in page.text
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
    assert "script-src 'sha256-" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "message",
    [
        {"ask": "set", "to": 64}, {"ask": "set", "key": "KEY", "from": 16, "to": 64},
        {"ask": "set", "key": "KEY", "from": 32, "to": 0},
        {"ask": "set", "key": "KEY", "from": 32, "to": True},
        {"ask": "set", "key": "KEY", "from": 32, "to": "64"},
        {"ask": "choose", "key": ["other.py", "constant", "bs", 0]}, {"ask": "show", "key": None},
        {"ask": "profile"}, {"ask": ["set"]}, {}, [], None, "set",
    ],
)  # fmt: skip
def test_wrong_messages_change_nothing(session: Session, message: Any) -> None:
    editor = session.editor
    key = editor.run("batchSizes")["places"][0]["key"]
    if isinstance(message, dict) and message.get("key") == "KEY":
        message = message | {"key": key}

    found = editor.run("dialsAsk", message)

    assert found["ok"] is False
    assert found["text"]
    assert editor.edits == []


def test_the_word_is_erased_from_the_address_and_nothing_else_is_asked_for(
    attacker: Attacker, dial: Callable[..., Dialler]
) -> None:
    page = dial()

    assert page.page.evaluate("location.href") == f"http://127.0.0.1:{attacker.port}/"
    assert page.page.evaluate("history.length") <= 2
    assert {urlsplit(url).netloc for url in page.requests} == {f"127.0.0.1:{attacker.port}"}
    page.page.reload()
    alert = page.page.wait_for_selector("[role=alert]")
    assert alert is not None
    assert "open this page from the editor again" in alert.inner_text()


def test_a_foreign_page_in_a_browser_gets_nothing(
    chromium: Browser, session: Session, attacker: Attacker
) -> None:
    """A page of another origin that knows port and word, on loopback as well."""
    context = chromium.new_context()
    page = context.new_page()
    page.route("http://evil.test/*", lambda r: r.fulfill(body="evil", content_type="text/html"))
    page.goto("http://evil.test/")

    found = page.evaluate(
        """async ([port, token]) => {
            const found = [];
            const url = `http://127.0.0.1:${port}/ask`;
            const body = JSON.stringify({ask: "set", from: 32, to: 64});
            for (const [mode, headers] of [
                ["cors", {"Content-Type": "application/json", "X-Pyprof2-Token": token}],
                ["no-cors", {"Content-Type": "text/plain"}]]) {
                try {
                    const answer = await fetch(url, {method: "POST", mode, headers, body});
                    found.push(answer.type + answer.status);
                } catch (error) { found.push("failed"); }
            }
            return found;
        }""",
        [attacker.port, attacker.token],
    )

    assert found[0] == "failed"
    assert found[1] in {"failed", "opaque0"}
    assert session.editor.edits == []
    context.close()


# -- sockets and ends ----------------------------------------------------------------------------


def listening(pids: list[int]) -> set[tuple[str, int]]:
    """Return address and port of what processes listen on, as the kernel tells; udp is bound."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                inodes.add(entry.readlink().name)
            except OSError:
                continue
    found = set()
    for kind, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        table = Path(f"/proc/net/{kind}")
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            if fields[3] == state and f"socket:[{fields[9]}]" in inodes:
                address, _, port = fields[1].partition(":")
                found.add((f"{kind} {address}", int(port, 16)))
    return found


def test_nothing_listens_before_the_dials_are_opened_and_then_on_loopback_alone(
    tmp_path: Path,
) -> None:
    session = opened_in(tmp_path)
    editor = session.editor
    assert listening(processes_of(str(session.state))) == set()

    address = editor.run("dials", {"open": False})["url"]
    port = urlsplit(address).port
    assert editor.run("dialsAsk", {"ask": "document"})["ok"]

    # 127.0.0.1 as the kernel writes it.
    assert listening(processes_of(str(session.state))) == {("tcp 0100007F", port)}
    assert editor.run("dials", {"open": False})["url"] == address
    seen = editor.run("dialsAsk", {"ask": "state"})["state"]
    waiting = editor.begin("dialsAsk", {"ask": "state", "seen": seen})
    editor.hang_up()
    editor.wait(lambda: not processes_of(str(session.state)), 10)
    assert waiting is not None
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port or 0)):
        pass


def test_without_three_recordings_the_dials_say_what_they_need(tmp_path: Path) -> None:
    session = opened_in(tmp_path, batches=named((16, 32)), recording="b32.pyprof2")

    found = session.editor.run("dials")

    assert not found["ok"]
    assert "recordings at 3 or more batch sizes; known: 16, 32" in found["text"]
    assert not session.editor.run("dialsPage")["ok"]
    session.editor.shut()


def test_a_panel_of_an_editor_has_the_same_page_and_messages(
    chromium: Browser, session: Session
) -> None:
    editor = session.editor
    html = editor.run("dialsPage")["html"]
    assert "connect-src" not in html.partition("</head>")[0]
    context = chromium.new_context()
    page = context.new_page()
    page.expose_function("run", lambda message: editor.run("dialsAsk", message))
    bridge = """
        window.acquireVsCodeApi = () => ({postMessage: async ({pyprof2, id, message}) => {
            // Who waits for a change waits: this editor answers one message after another.
            if (pyprof2 !== "ask" || message.seen !== undefined) return;
            const answer = await window.run(message);
            window.postMessage({pyprof2: "answer", id, answer}, "*");
        }});
    """
    page.add_init_script(bridge)
    page.route("http://panel.test/", lambda r: r.fulfill(body=html, content_type="text/html"))
    page.goto("http://panel.test/")
    page.wait_for_selector("html[data-ready]", timeout=60_000)

    page.focus("#dial-memory")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")

    for _ in range(100):
        page.wait_for_timeout(50)
        if editor.edits:
            break
    assert editor.text == changed(session, 33)
    context.close()


assert CODE.count("32") == 1
