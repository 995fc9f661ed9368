"""The server: for whoever has the address, on this machine, and for nobody else."""

import contextlib
import http.client
import json
import random
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from itertools import islice

import pytest

from boosted_attention.cli.explore import command_of, names_of
from boosted_attention.explore.explorer import Explorer
from boosted_attention.explore.server import FILES, LARGEST_BODY
from tests.cli.test_train import refused
from tests.explore.conftest import PAIR, served

ASKED = {"tab": "a", "number": 1, "text": "def read(self"}


def send(server, method="GET", path="", body=None, token=None, **headers):
    """Send one request; return its status, headers and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    token = server.token if token is None else token
    if body is not None:
        headers = {"Content-Type": "application/json", **headers}
    connection.request(method, f"/{token}/{path}", body, {k.replace("_", "-"): v for k, v in headers.items()})
    with contextlib.closing(connection):
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def ask(server, what="view", **changes):
    """Ask a question; return the status and the first line of the answer."""
    status, _, body = send(server, "POST", what, json.dumps({**ASKED, **changes}))
    return status, json.loads(body.splitlines()[0])


def test_it_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"
    with pytest.raises(OSError, match=r"refused|unreachable|timed out"):
        socket.create_connection((own_address(), server.server_port), timeout=1).close()


def own_address() -> str:
    """Another address of this machine than 127.0.0.1: that of its network, or of the loopback's own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            found = probe.getsockname()[0]
        except OSError:
            found = "127.0.0.2"
    return found if found != "127.0.0.1" else "127.0.0.2"


def test_pages_and_answers(server):
    for path, (_, kind) in FILES.items():
        status, headers, body = send(server, path=path)
        assert (status, headers["Content-Type"]) == (200, kind)
        assert body
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
    about = json.loads(send(server, path="about")[2])
    assert [side["rounds"] for side in about["sides"]] == [[2, 2, 2, 2], [1, 1, 1, 1]]
    status, view = ask(server)
    assert status == 200
    assert view["tokens"][0] == "def"
    status, step = ask(server, "step", temperature=0.7, seed=1)
    assert status == 200
    assert step["alternatives"]


@pytest.mark.parametrize("token", ["", "x", "0" * 32, "..", "%2e%2e", "é"])
def test_without_the_token_nothing_is_answered(server, token):
    for path in ("", "page.js", "about", "view"):
        method = "POST" if path == "view" else "GET"
        quoted = token.encode("unicode-escape").decode()
        status, _, body = send(server, method, path, json.dumps(ASKED) if method == "POST" else None, token=quoted)
        assert status == 403
        assert server.token not in body.decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": "evil.example:{port}"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=str,
)
def test_forged_names_and_origins_are_refused(server, headers):
    headers = {name: value.format(port=server.server_port) for name, value in headers.items()}
    assert send(server, **headers)[0] == 403
    assert send(server, "POST", "view", json.dumps(ASKED), **headers)[0] == 403


def test_the_page_itself_is_answered(server):
    for host in (f"127.0.0.1:{server.server_port}", f"localhost:{server.server_port}"):
        own = {"Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
        assert send(server, "POST", "view", json.dumps(ASKED), **own)[0] == 200


@pytest.mark.parametrize(
    "path", ["../server.py", "..%2fserver.py", "/etc/passwd", "page.js/../x", "server.py", "page.js?x"]
)
def test_no_file_is_read_by_its_path(server, path):
    assert send(server, path=path)[0] == 404
    assert send(server, "POST", path, "{}")[0] == 404


def test_what_is_too_large_is_refused(server):
    assert send(server, "POST", "view", b" " * (LARGEST_BODY + 1))[0] == 413
    assert send(server, "POST", "view", b"", Content_Length="99999999999999")[0] == 413
    status, answer = ask(server, text="x" * 20_001)
    assert (status, answer["error"]) == (400, "The text has 20,001 characters; at most 20,000 are read.")
    status, answer = ask(server, text="word " * 500)
    assert status == 200  # a question that has no answer
    assert "at most 128" in answer["refused"]


def test_other_forms_of_questions_are_refused(server):
    body = json.dumps(ASKED)
    assert send(server, "POST", "view", body, Content_Type="text/plain")[0] == 415
    assert send(server, "POST", "view", body, Transfer_Encoding="chunked")[0] == 411
    assert send(server, "POST", "view", body, Content_Length="-1")[0] == 411
    assert send(server, "DELETE", "view")[0] == 405
    assert send(server, "OPTIONS", "view", Origin="http://evil.example")[0] == 405


def ask_again_meanwhile(server, begun, go_on) -> dict[int, tuple]:
    """Ask a second question once the first has begun, let the first go on, and return the answers to both."""
    answers = {}
    asking = {n: threading.Thread(target=lambda n=n: answers.update({n: ask(server, number=n)})) for n in (1, 2)}
    asking[1].start()
    assert begun.wait(10)
    asking[2].start()
    while server.turns.newest("a") != 2:
        pass
    go_on.set()
    for thread in asking.values():
        thread.join()
    return answers


def test_a_newer_question_of_the_tab_takes_the_place_of_an_older_one(runs):
    """The older one is told so, while it computes."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Explorer):
        def parts(self, question, check):
            if question.number == 1:
                begun.set()
                go_on.wait(10)
            check()
            yield from super().parts(question, check)

    with served(Slow(runs[:1], ["boosted"], "")) as server:
        answers = ask_again_meanwhile(server, begun, go_on)
    assert answers[1] == (409, {"error": "superseded"})
    assert answers[2][0] == 200


def test_an_error_of_ours_is_said_without_what_was_typed(runs):
    class Broken(Explorer):
        def parts(self, question, check):
            if question.number == 2:
                yield from islice(super().parts(question, check), 2)
            raise RuntimeError(question.text)

    with served(Broken(runs[:1], ["boosted"], "")) as server:
        assert ask(server) == (500, {"error": "The server failed: RuntimeError."})
        status, _, body = send(server, "POST", "view", json.dumps({**ASKED, "number": 2}))
    assert status == 200
    assert [list(json.loads(line)) for line in body.splitlines()][1:] == [["side", "layer", "rounds"], ["error"]]
    assert ASKED["text"].encode() not in body.splitlines()[-1]


def test_layers_come_as_they_are_known(runs):
    """What is known of the whole text has arrived before the first layer is looked at."""
    arrived = threading.Event()

    class Slow(Explorer):
        def parts(self, question, check):
            view, *layers = super().parts(question, check)
            yield view
            assert arrived.wait(10)
            yield from layers

    with served(Slow(runs[:1], ["boosted"], "")) as server:
        request = urllib.request.Request(
            f"{server.address}view", json.dumps(ASKED).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.headers["Content-Type"] == "application/x-ndjson"
            assert json.loads(answer.readline())["sides"][0]["guesses"]
            arrived.set()
            layers = [json.loads(line) for line in answer]
    assert [part["layer"] for part in layers] == [0, 1, 2, 3]
    assert all(len(part["rounds"]) == 2 for part in layers)


def test_the_rest_of_an_answer_is_not_computed_for_a_reader_who_moved_on(runs):
    begun, go_on, looked = threading.Event(), threading.Event(), []

    class Slow(Explorer):
        def parts(self, question, check):
            for part in super().parts(question, check):
                looked.append(question.number)
                yield part
                if question.number == 1:
                    begun.set()
                    assert go_on.wait(10)

    with served(Slow(runs[:1], ["boosted"], "")) as server:
        ask_again_meanwhile(server, begun, go_on)
    assert looked == [1, 2, 2, 2, 2, 2]


def test_five_hundred_odd_requests(server, capfd):
    """None of them is a failure of the server, and none shows its inside."""
    draw = random.Random(0)
    odd = [
        "",
        "\x00",
        "é",
        "\ud800",
        "../",
        "{}",
        "[" * 3000,
        "null",
        "NaN",
        "1e999",
        "9" * 5000,
        "<script>",
        "a" * 3000,
    ]
    values = [*odd, None, True, -1, 0, 10**30, 1.5, [], {}, [[]], [None], [1, -1, 10**12], [{"side": 0}]]

    def body() -> bytes:
        kind = draw.randrange(4)
        if kind == 0:
            return draw.choice(odd).encode("utf-8", "surrogatepass")
        if kind == 1:
            return draw.randbytes(draw.randrange(200))
        asked = dict(ASKED)
        for key in draw.sample(
            [*ASKED, "added", "position", "patches", "by", "temperature", "seed"], draw.randrange(3)
        ):
            asked[key] = draw.choice(values)
        if kind == 3:
            patch = {
                key: draw.choice([0, 1, 2, -1, 0.5, 99, "x", None]) for key in ("side", "layer", "round", "factor")
            }
            asked["patches"] = [patch]
        return json.dumps(asked).encode()

    statuses = set()
    for _ in range(500):
        whole = body()
        path = draw.choice(
            [f"/{server.token}/view"] * 6 + [f"/{server.token}/step"] * 3 + ["/", "*", "//", "/%00", "/" + "x" * 500]
        )
        method = draw.choice(["POST"] * 8 + ["GET", "PUT", "HEAD", "\x00", "POST " * 3])
        lines = [f"{method} {path} {draw.choice(['HTTP/1.1'] * 6 + ['HTTP/1.0', 'HTTP/9', 'x', ''])}"]
        lines += [f"Host: 127.0.0.1:{server.server_port}"] * draw.choice([1] * 9 + [0, 2])
        lines += [
            f"Content-Length: {draw.choice([len(whole)] * 8 + [0, 'x', 10**12])}",
            "Content-Type: application/json",
        ]
        lines += [
            draw.choice(["X: " + "y" * draw.randrange(4000), "no colon", "Expect: 100-continue", "Origin: null"])
        ] * (draw.random() < 0.2)
        head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
            connection.sendall(head + whole)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while part := receive(connection):
                answer += part
        assert b"Traceback" not in answer
        if answer.startswith(b"HTTP/"):
            statuses.add(int(answer.split()[1]))
    assert statuses <= {100, 200, 400, 403, 404, 405, 409, 411, 413, 414, 415, 431}
    assert {200, 400, 403, 405, 411} <= statuses
    assert capfd.readouterr().err == ""
    assert ask(server, tab="after")[0] == 200


def receive(connection: socket.socket) -> bytes:
    """The next part of an answer; nothing where the server has closed the connection on unread bytes."""
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def test_a_port_in_use_is_said(server, capsys):
    message = refused(["explore", PAIR / "boosted", "--port", server.server_port, "--no-browser"], capsys)
    assert f"--port {server.server_port} cannot be used (Address already in use)" in message
    assert "nowhere is not a run folder" in refused(["explore", "nowhere", "--no-browser"], capsys)


# A shell has interrupts ignored in what it runs in the background, this test among it.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from boosted_attention.cli.main import main
main()
"""


def test_the_command_says_its_address_and_ends_with_ctrl_c():
    command = [sys.executable, "-c", INTERRUPTIBLE, "explore", PAIR / "boosted", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            said = [process.stdout.readline() for _ in range(3)]
            assert said[0] == "exploring boosted at\n"
            page = urllib.request.urlopen(said[1].strip(), timeout=20)
            assert b"Inside the rounds" in page.read()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130, process.stderr.read()
            assert process.stderr.read() == "boosted-attention: stopped\n"
        finally:
            process.kill()


def test_names_and_the_command_that_opens_the_page_again(tmp_path):
    one, other = tmp_path / "a b" / "run", tmp_path / "run"
    assert names_of([one, tmp_path / "x"]) == ["run", "x"]
    assert names_of([one, other]) == [str(one), str(other)]
    assert command_of([one]) == f"boosted-attention explore '{one}'"
    assert command_of([other, one]).endswith(f"{other} --against '{one}'")
