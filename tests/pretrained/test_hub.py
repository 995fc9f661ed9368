"""The way to the hub: what arrives there, what comes back, and what is said when it does not."""

import shutil

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub import constants
from transformers.utils import hub as transformers_hub

from boosted_attention import boost
from boosted_attention.cli.main import main
from boosted_attention.pretrained import to_transformers
from boosted_attention.pretrained.card import is_unchanged
from boosted_attention.pretrained.hub import push_folder
from boosted_attention.train.folder import load_run
from boosted_attention.validation import InputError
from tests.cli.test_train import refused
from tests.pretrained.families import disturb, tiny, tokens
from tests.pretrained.stand_in import BROKEN, TOKEN, Repository, standing_in
from tests.pretrained.test_boost import logits
from tests.pretrained.test_card import RUN, export
from tests.pretrained.test_native import made

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")  # the hub's own use of httpx
NAME = "somebody/mini"


@pytest.fixture(scope="module", autouse=True)
def session():
    """One client of the hub's library for all tests: making its certificates ready takes longer than they do."""
    yield
    huggingface_hub.close_session()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """The stand-in, in the place that the hub's library has read from the environment when it was imported."""
    with standing_in() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.address + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "no-tokens"))
        monkeypatch.setattr(transformers_hub, "_hf_api", None)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export(tmp_path_factory.mktemp("exported") / "mini")


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def push(out, *more):
    """Export with an upload; return the exit code."""
    with pytest.raises(SystemExit) as stop:
        main(["export", str(RUN), str(out), "--push", NAME, *more])
    return stop.value.code


def test_an_exported_run_arrives_byte_for_byte_and_comes_back(hub, tmp_path, capsys):
    assert push(tmp_path / "mini", "--private") == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1:] == [f"uploaded: {hub.address}/{NAME}"]
    assert printed.err == ""
    held = hub.repositories[NAME]
    assert held.private
    assert held.files == content(tmp_path / "mini")
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= held.files.keys()
    assert f"from_pretrained('{NAME}')" in held.files["README.md"].decode()
    model = transformers.AutoModelForCausalLM.from_pretrained(NAME).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(NAME)
    ids = tokenizer("def read(", return_tensors="pt").input_ids
    with torch.no_grad():
        assert torch.equal(model(ids).logits, load_run(RUN).model(ids))


@pytest.mark.parametrize("kind", ["ours", "boosted"])
def test_models_push_themselves_with_their_card(kind, hub, tmp_path):
    model = to_transformers(made()) if kind == "ours" else boost(tiny("llama"))
    disturb(model)
    model.push_to_hub(NAME, tags="mine", private=True)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "diary.txt").write_text("not to be uploaded")
    model.save_pretrained(tmp_path / "saved", push_to_hub=True, repo_id="somebody/saved")
    for name, private in ((NAME, True), ("somebody/saved", False)):
        held = hub.repositories[name]
        assert held.private == private
        assert is_unchanged(held.files["README.md"])
        assert "- mine" in held.files["README.md"].decode()
        loaded = type(model).from_pretrained(name).eval()
        assert torch.equal(logits(loaded, tokens() % 50), logits(model, tokens() % 50))
    (tmp_path / "saved" / "diary.txt").unlink()
    assert hub.repositories["somebody/saved"].files == content(tmp_path / "saved")


def test_a_readme_on_the_hub_is_its_authors(hub, exported, tmp_path):
    mine = b"---\nlicense: mit\n---\nwritten by hand\n"
    hub.repositories[NAME] = Repository(files={"README.md": mine, "other.txt": b"kept"})
    assert push(tmp_path / "first") == 0
    held = hub.repositories[NAME].files
    assert (held["README.md"], held["other.txt"]) == (mine, b"kept")
    assert held["model.safetensors"] == (exported / "model.safetensors").read_bytes()
    card = (tmp_path / "first" / "README.md").read_bytes()
    held["README.md"] = (exported / "README.md").read_bytes()  # a card of ours, with another name in it
    assert held["README.md"] != card
    assert push(tmp_path / "second") == 0
    assert hub.repositories[NAME].files["README.md"] == card


@pytest.mark.parametrize(
    ("pattern", "status", "message", "expected"),
    [
        ("POST /api/repos/create", 401, "no", "the hub does not accept the token; log in anew (hf auth login)"),
        ("POST /api/repos/create", 403, "no\nmore", "the token may not write there"),
        ("POST /api/repos/create", 500, "", "the hub cannot do it now; try again later (it answered 500)"),
        ("/commit/main", 409, "moved on", "something else is changing the repository; try again (it answered 409"),
        ("/commit/main", 500, f"a trace with {TOKEN}", "(it answered 500: a trace with (token))"),
        ("PUT /objects/", 403, "", "the token may not write there"),
        ("/preupload/main", 404, "", "there is no such owner or repository"),
        ("POST /api/repos/create", BROKEN, "", "the way to http://127.0.0.1"),
        ("/commit/main", BROKEN, "", "the way to http://127.0.0.1"),
    ],
)
def test_what_goes_wrong_is_one_line_and_the_folder_stays(
    pattern, status, message, expected, hub, exported, tmp_path, capsys
):
    hub.failing[pattern] = (status, message)
    folder = tmp_path / "mini"
    shutil.copytree(exported, folder)
    before = content(folder)
    with pytest.raises(InputError) as error:
        push_folder(folder, NAME)
    said = str(error.value)
    assert expected in said
    assert said.startswith(f"push={NAME!r} failed: ")
    assert said.endswith(f"; {folder} is whole, and hf upload sends it once that is mended")
    assert "\n" not in said
    assert TOKEN not in said
    assert capsys.readouterr().err == ""
    assert content(folder) == before


def test_the_command_says_it_and_leaves_the_folder(hub, tmp_path, capsys):
    hub.failing["POST /api/repos/create"] = (500, "")
    assert push(tmp_path / "mini") == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("written: ")
    assert printed.err.startswith(f"boosted-attention: --push {NAME} failed: the hub cannot do it now")
    assert printed.err.count("\n") == 1
    assert (tmp_path / "mini" / "model.safetensors").is_file()


def test_what_was_asked_to_be_private_is_not_sent_elsewhere(hub, tmp_path, capsys):
    hub.repositories[NAME] = Repository()
    assert push(tmp_path / "mini", "--private") == 2
    assert f"--private: {NAME} is there already and is not private" in capsys.readouterr().err
    assert not hub.repositories[NAME].files


@pytest.mark.parametrize("name", ["a/b/c", "a b/c", "mini", "", "-a/b", "a/b.git", "a/\x1b[31mb"])
def test_wrong_names_are_refused_before_anything_is_done(name, hub, tmp_path, capsys):
    said = refused(["export", RUN, tmp_path / "mini", f"--push={name}"], capsys)
    assert "is no name of a repository; it is OWNER/NAME" in said
    assert not (tmp_path / "mini").exists()
    assert not hub.asked


def test_without_a_login_or_a_network_nothing_is_done(hub, tmp_path, capsys, monkeypatch):
    command = ["export", RUN, tmp_path / "mini"]
    assert "--private is for --push OWNER/NAME" in refused([*command, "--private"], capsys)
    monkeypatch.delenv("HF_TOKEN")
    assert f"--push {NAME} needs a login: hf auth login, or a token in HF_TOKEN" in refused(
        [*command, "--push", NAME], capsys
    )
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "is told to stay offline; unset HF_HUB_OFFLINE" in refused([*command, "--push", NAME], capsys)
    assert not (tmp_path / "mini").exists()
    assert not hub.asked


def test_a_server_that_is_not_there(hub, exported, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match=r"the way to http://127\.0\.0\.1:9 broke off: .*refused"):
        push_folder(exported, NAME)
