"""Downloading from a server of this machine: files that are whole and right come in place, nothing else does."""

from __future__ import annotations

import gzip
import hashlib
import io
import socket
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from apas.datasets import DATASETS
from apas.errors import InputError, MissingExtra
from apas.paper import data_folder as download
from apas.paper.data_folder import SOURCES, Source, State, fetch

TABLE = b"a,b\n" + b"1,2\n" * 50_000
DIGEST = hashlib.sha256(TABLE).hexdigest()


def packed(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".csv", text)
    return content.getvalue()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.asked.append(self.path)
        what, content = server.files.get(self.path, ("absent", b""))
        if what == "silent":
            server.over.wait(20)
        elif what == "absent":
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if what == "cut" else content)

    def log_message(self, *words):
        pass


@pytest.fixture
def server(monkeypatch):
    """A server on this machine; `files` says what it does with each path, `asked` what it was asked for."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.asked, server.over = {"/right": ("whole", TABLE)}, [], threading.Event()
    server.at = lambda path: f"http://127.0.0.1:{server.server_port}{path}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def sources(server, *paths, member=None, name="no2", digest=DIGEST):
    return {name: Source(digest, tuple(server.at(path) for path in paths), member)}


def left_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_right_file_comes_in_place(server, tmp_path):
    (found,) = fetch(tmp_path / "new" / "data", ["no2"], sources=sources(server, "/right"))
    assert (found.state, found.ok, found.reason) == (State.downloaded, True, "")
    assert found.path == tmp_path / "new" / "data" / "no2" / "no2.csv"
    assert found.path.read_bytes() == TABLE
    assert left_in(tmp_path) == [found.path]


def test_what_is_there_is_not_asked_for(server, tmp_path):
    known = sources(server, "/right")
    fetch(tmp_path, ["no2"], sources=known)
    (found,) = fetch(tmp_path, ["no2"], sources=known)
    assert (found.state, server.asked) == (State.there, ["/right"])


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (("whole", TABLE + b"1,2\n"), "what came has the SHA-256"),
        (("whole", b""), "what came has the SHA-256"),
        (("cut", TABLE), "the connection was cut before the file was whole"),
        (("absent", b""), "the server answered 404"),
    ],
)
def test_anything_else_stays_away(server, tmp_path, answer, reason):
    server.files["/wrong"] = answer
    (found,) = fetch(tmp_path, ["no2"], sources=sources(server, "/wrong"))
    assert (found.state, found.ok) == (State.missing, False)
    assert reason in found.reason
    assert found.reason.startswith(f"{tmp_path / 'no2' / 'no2.csv'} of the dataset 'no2' is missing (")
    assert found.reason.endswith(f": get {server.at('/wrong')} on a machine with a network and put it there.")
    assert left_in(tmp_path) == []


def test_a_silent_server_is_given_up(server, tmp_path):
    server.files["/silent"] = ("silent", b"")
    (found,) = fetch(tmp_path, ["no2"], sources=sources(server, "/silent"), patience=0.2)
    assert "(no answer within 0.2 s)" in found.reason
    assert left_in(tmp_path) == []


def test_nobody_listens(server, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/no2.csv"
        (found,) = fetch(tmp_path, ["no2"], sources={"no2": Source(DIGEST, (address,))})
    assert found.state is State.missing
    assert f"(no connection: ConnectionError): get {address} on a machine" in found.reason
    assert left_in(tmp_path) == []


def test_a_file_without_end_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MOST", len(TABLE) - 1)
    (found,) = fetch(tmp_path, ["no2"], sources=sources(server, "/right"))
    assert f"(it has more than {len(TABLE) - 1} bytes)" in found.reason


@pytest.mark.parametrize("first", [("absent", b""), ("cut", TABLE), ("whole", b"other")])
def test_the_second_address_is_tried(server, tmp_path, first):
    server.files["/first"] = first
    (found,) = fetch(tmp_path, ["no2"], sources=sources(server, "/first", "/right"))
    assert found.state is State.downloaded
    assert server.asked == ["/first", "/right"]


def test_all_addresses_are_named(server, tmp_path):
    server.files["/wrong"] = ("whole", b"other")
    (found,) = fetch(tmp_path, ["no2"], sources=sources(server, "/none", "/wrong"))
    assert "(the server answered 404; then what came has the SHA-256" in found.reason
    assert f"get {server.at('/none')} or {server.at('/wrong')} on" in found.reason


def test_a_run_after_a_failure_fetches_what_is_missing(server, tmp_path):
    server.files["/late"] = ("cut", TABLE)
    known = sources(server, "/right") | sources(server, "/late", name="spam")
    assert [f.state for f in fetch(tmp_path, known, sources=known)] == [State.downloaded, State.missing]
    server.files["/late"] = ("whole", TABLE)
    assert [f.state for f in fetch(tmp_path, known, sources=known)] == [State.there, State.downloaded]
    assert server.asked == ["/right", "/late", "/late"]


def test_one_failure_does_not_stop_the_others(server, tmp_path):
    known = sources(server, "/none", name="spam") | sources(server, "/right")
    assert [f.state for f in fetch(tmp_path, known, sources=known)] == [State.missing, State.downloaded]


def test_a_file_of_somebody_else_is_left(server, tmp_path):
    path = tmp_path / "no2" / "no2.csv"
    path.parent.mkdir()
    path.write_text("mine")
    (found,) = fetch(tmp_path, ["no2"], sources=sources(server, "/right"))
    assert (found.state, server.asked, path.read_text()) == (State.other, [], "mine")
    assert "its SHA-256 is another; move it away and run again." in found.reason


# Archives


def news(server, path):
    return sources(server, path, member="News.csv", name="news")


def test_a_member_of_an_archive_is_checked_unpacked_and_put_compressed(server, tmp_path):
    server.files["/zip"] = ("whole", packed(folder__News=TABLE, folder__Other="x"))
    (found,) = fetch(tmp_path, ["news"], sources=news(server, "/zip"))
    assert (found.state, found.path.name) == (State.downloaded, "OnlineNewsPopularity.csv.gz")
    assert gzip.decompress(found.path.read_bytes()) == TABLE
    assert fetch(tmp_path, ["news"], sources=news(server, "/zip"))[0].state is State.there
    found.path.write_bytes(found.path.read_bytes()[:-100])
    assert fetch(tmp_path, ["news"], sources=news(server, "/zip"))[0].state is State.other


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (packed(News="other"), "what came has the SHA-256"),
        (packed(Other=TABLE), "the archive has no usable News.csv"),
        (packed(a__News=TABLE, b__News=TABLE), "the archive has no usable News.csv"),
        (TABLE, "what came is no zip archive that can be read"),
        (packed(News=TABLE)[:-40], "what came is no zip archive that can be read"),
    ],
    ids=["other content", "other member", "two members", "no archive", "cut off"],  # archives hold the time of day
)
def test_other_archives_stay_away(server, tmp_path, content, reason):
    server.files["/zip"] = ("whole", content)
    (found,) = fetch(tmp_path, ["news"], sources=news(server, "/zip"))
    assert reason in found.reason
    assert found.reason.endswith("unpack it and put its News.csv, compressed with gzip, there.")
    assert left_in(tmp_path) == []


def test_a_large_member_is_not_unpacked(server, tmp_path, monkeypatch):
    server.files["/zip"] = ("whole", packed(News=TABLE))
    monkeypatch.setattr(download, "MOST", len(TABLE) - 1)
    (found,) = fetch(tmp_path, ["news"], sources=news(server, "/zip"))
    assert "the archive has no usable News.csv" in found.reason


# Arguments


def test_unknown_name(tmp_path):
    with pytest.raises(InputError, match=r"`names` of fetch must be among diabetes, .*, got 'iris'"):
        fetch(tmp_path, ["iris"])


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "no2").touch()
    with pytest.raises(InputError, match="cannot be written: .*; name another folder"):
        fetch(tmp_path, ["no2"], sources=sources(server, "/right"))


def test_pooch_is_asked_for_only_when_something_is_missing(server, tmp_path, monkeypatch):
    known = sources(server, "/right")
    fetch(tmp_path, known, sources=known)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert fetch(tmp_path, known, sources=known)[0].state is State.there
    with pytest.raises(MissingExtra, match=r'pip install "apas\[data\]"'):
        fetch(tmp_path / "new", known, sources=known)


def test_every_dataset_has_a_source_of_a_fixed_revision():
    assert set(SOURCES) == set(DATASETS)
    for name, source in SOURCES.items():
        assert len(source.sha256) == 64
        assert source.addresses
        for address in source.addresses:
            assert address.startswith("https://")
            if name != "news":
                host, owner, repository, revision = address.split("/")[2:6]
                assert host == "raw.githubusercontent.com"
                assert len(revision) == 40, f"{owner}/{repository} is not pinned"
        if len(source.addresses) == 2:
            assert "junqi-jiang/robust-ce-inn" in source.addresses[0]
