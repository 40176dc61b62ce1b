"""What is hidden, and what must not be: a masked `MAX_TOKENS` helps nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.secrets import looks_secret, mask, mask_text, mask_words, split

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
HF = "hf_" + "aB3d" * 8

SECRET_NAMES = """
    HF_TOKEN TOKEN token GITHUB_TOKEN hfToken HFToken NGROK_AUTHTOKEN AWS_SESSION_TOKEN API_TOKENS access-token
    SECRET AWS_SECRET_ACCESS_KEY client.secret SECRETS DB_PASSWORD password MYSQL_PASSWD PASSPHRASE PGPASSWORD_X
    GIT_SYNC_PASSWORD PASSWORD1 CREDENTIAL GOOGLE_APPLICATION_CREDENTIALS WANDB_API_KEY OPENAI_APIKEY apiKey API_KEY
    AWS_ACCESS_KEY_ID accessKey PRIVATE_KEY SSH_PRIVATE_KEY STORAGE_ACCOUNT_KEY AUTH NPM_AUTH basic_auth AUTHORIZATION
    DB_PASS MYSQL_PWD COOKIE VAULT_SECRET_ID GITHUB_PAT
"""
PLAIN_NAMES = """
    AUTHOR AUTHORS GIT_AUTHOR_NAME TOKENIZERS_PARALLELISM TOKENIZER MONKEY KEYBOARD KEY SORT_KEY PRIMARY_KEY PUBLIC_KEY
    MAX_TOKENS max_new_tokens NUM_TOKENS TOKENS_PER_BATCH PAD_TOKEN_ID EOS_TOKEN TOKEN_LIMIT PWD OLDPWD OLD_PWD
    COMPASS BYPASS PASS_RATE PATH SSH_AUTH_SOCK AUTH_TYPE TOKEN_FILE SECRET_NAME XAUTHORITY AUTHENTIC
    CUDA_VISIBLE_DEVICES SECRETARY PATIENCE LR LAPTOP
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_secret_names(name: str) -> None:
    assert looks_secret(name)
    assert looks_secret(name, "value")


@pytest.mark.parametrize("name", PLAIN_NAMES.split())
def test_plain_names(name: str) -> None:
    assert not looks_secret(name)
    assert not looks_secret(name, "value")


SECRET_VALUES = [HF, JWT, f"--token={HF}", f"Bearer {JWT}", "AKIAIOSFODNN7EXAMPLE", "xoxb-1234567890-abc"]
SECRET_VALUES += [start + "a1B2" * 9 for start in ("ghp_", "github_pat_", "sk-proj-", "glpat-", "npm_")]
SECRET_VALUES += [
    "https://me:pw@github.com/u/r.git",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    "X=1;AccountKey=abc/de==;Y=2",
]
PLAIN_VALUES = ["", "hf_transformers", "sk-learn", "disk-1234567890abcdefgh", "AKIA", "eyJ", "ghp_", "basic training"]
PLAIN_VALUES += ["https://host:8080/x@y", "http://a/b:c@d", "s3://bucket/key", "user@host:path"]


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_secret_values(value: str) -> None:
    assert looks_secret("ANY", value)
    assert mask({"ANY": value}) == {"ANY": "***"}


@pytest.mark.parametrize("value", PLAIN_VALUES)
def test_plain_values(value: str) -> None:
    assert not looks_secret("ANY", value)
    assert mask_text(value) == value


def test_a_switch_hides_nothing() -> None:
    assert not looks_secret("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert not looks_secret("USE_AUTH", "True")
    assert looks_secret("DB_PASSWORD", "12")


def test_split_and_mask_keep_order_and_lose_nothing() -> None:
    env = {"B": "1", "HF_TOKEN": "hf_abc", "A": "2", "WANDB_API_KEY": "k"}
    assert split(env) == ({"B": "1", "A": "2"}, {"HF_TOKEN": "hf_abc", "WANDB_API_KEY": "k"})
    assert list(mask(env).items()) == [("B", "1"), ("HF_TOKEN", "***"), ("A", "2"), ("WANDB_API_KEY", "***")]
    assert env["HF_TOKEN"] == "hf_abc"


def test_text_loses_the_longer_secret_first() -> None:
    assert mask_text("a swordfish2 b swordfish", ["swordfish", "swordfish2", "", "b"]) == "a *** b ***"
    assert mask_text(f"push https://me:pw@host/r with {HF}!") == "push https://***@host/r with ***!"


def test_words_of_a_command_line() -> None:
    words = ["train.py", "--password", "hunter2", "--api-key=k1", "HF_TOKEN=x", "--max-tokens", "512", HF, "--lr=0.1"]
    assert mask_words(words) == [
        *["train.py", "--password", "***", "--api-key=***", "HF_TOKEN=***", "--max-tokens", "512", "***", "--lr=0.1"]
    ]
    assert mask_words(["--token", "--verbose", "plain"]) == ["--token", "--verbose", "plain"]
    assert mask_words([]) == []


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=40)))
def test_any_environment_is_parted(env: dict[str, str]) -> None:
    plain, secret = split(env)
    assert plain | secret == env
    assert not plain.keys() & secret.keys()
    assert mask(env) == {name: "***" if name in secret else value for name, value in env.items()}


@given(st.text(), st.lists(st.text(alphabet="abcxyz", min_size=4, max_size=8), max_size=4))
def test_no_given_secret_survives(text: str, secrets: list[str]) -> None:
    shown = mask_text(text + " ".join(secrets), secrets)
    assert not any(secret in shown for secret in secrets)


@given(st.lists(st.text()))
def test_as_many_words_as_before(argv: list[str]) -> None:
    assert len(mask_words(argv)) == len(argv)
