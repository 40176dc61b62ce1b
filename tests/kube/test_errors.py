"""What each answer of a server means."""

import json
import pickle

import pytest

from arena.errors import AlreadyExistsError, ArenaError, BackendError, ForbiddenError, NotFoundError, SpecError
from arena.kube.config import Access, ExecPlugin
from arena.kube.errors import Answered, ConflictError, ExpiredError, read_answer, refusal

ACCESS = Access(server="https://k8s:6443", user="alice", source="/home/a/.kube/config")


def refused(code: int, reason: str = "", message: str = "words", **more: object) -> ArenaError:
    body = json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message, **more}).encode()
    return refusal(read_answer(code, body), ACCESS)


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", SpecError),
        (401, "Unauthorized", ForbiddenError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "AlreadyExists", AlreadyExistsError),
        (409, "Conflict", ConflictError),
        (410, "Expired", ExpiredError),
        (410, "Gone", ExpiredError),
        (413, "RequestEntityTooLarge", SpecError),
        (422, "Invalid", SpecError),
        (429, "TooManyRequests", BackendError),
        (500, "InternalError", BackendError),
        (503, "ServiceUnavailable", BackendError),
        (504, "Timeout", BackendError),
        (301, "", BackendError),
    ],
)
def test_each_code_has_its_class(code: int, reason: str, kind: type[ArenaError]) -> None:
    error = refused(code, reason)
    assert isinstance(error, kind)
    assert isinstance(error, Answered)
    assert (error.answer.code, error.answer.reason) == (code, reason)
    assert error.exit_code == kind.exit_code


def test_the_servers_own_words_are_kept() -> None:
    quota = 'pods "a" is forbidden: exceeded quota: team, requested: requests.cpu=9, used: 0, limited: 8'
    assert refused(403, "Forbidden", quota).what == quota


def test_causes_are_kept() -> None:
    causes = [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.x"}]
    error = refused(422, "Invalid", details={"kind": "Job", "name": "a", "group": "batch", "causes": causes})
    assert isinstance(error, Answered)
    details = error.answer.details
    assert details
    assert details.causes
    assert (details.kind, details.causes[0].field) == ("Job", "spec.x")


@pytest.mark.parametrize("body", [b"<html>502 Bad Gateway</html>", b"", b"[]", b'{"code": "x"}', b"\xff\xfe"])
def test_what_is_no_status_is_an_error_all_the_same(body: bytes) -> None:
    error = refusal(read_answer(502, body), ACCESS)
    assert isinstance(error, BackendError)
    assert error.what
    assert error.why.startswith("https://k8s:6443 answers 502")


def test_who_is_not_known_is_told_how_to_log_in() -> None:
    assert refused(401).hint == "get a new kubeconfig or token for user 'alice' (/home/a/.kube/config)"
    with_plugin = Access(server="https://x", user="u", exec=ExecPlugin(api_version="v1", command="aws"))
    error = refusal(read_answer(401, b""), with_plugin)
    assert (error.what, "'aws'" in error.hint) == ("the server does not know you", True)


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(refused(404, "NotFound")))
    assert isinstance(error, NotFoundError)
    assert isinstance(error, Answered)
    assert error.answer.code == 404
