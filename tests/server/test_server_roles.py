"""Who may sign in, and who sees what: passwords, sessions, tokens, rates, private components in every query."""

import stat

import pytest
from sqlalchemy import func, select

from davylamp.errors import InvalidInput, StoreMismatch, Unavailable, UnknownName
from davylamp.server.accounts.audit import FAILED, Origin, TooManyAttempts
from davylamp.server.accounts.sessions import (
    csrf_token,
    digest_of_secret,
    end_session,
    is_form_mark,
    make_token,
    start_session,
    viewer_of_session,
    viewer_of_token,
)
from davylamp.server.accounts.users import (
    SYSTEM,
    add_user,
    change_password,
    find_user,
    generate_password,
    has_admin,
    set_active,
    sign_in,
)
from davylamp.server.components.registration import ForbiddenError, NotFoundError, change_card, delete, find_component
from davylamp.server.database.permissions import VISITOR, Viewer, cells_for, components_for, tasks_for
from davylamp.server.database.records import AuditRow, CellRow, FactRow, SignInRow, TokenRow, UserRow
from davylamp.server.folder import ServerFolder, Settings
from davylamp.server.tasks.submission import TaskRequest, find_task, submit

from .conftest import PASSWORD


def test_only_the_right_password_signs_in_and_none_is_kept_as_it_is(folder, users):
    assert sign_in(folder.database, folder.hasher, Origin("alice"), PASSWORD).name == "alice"
    assert sign_in(folder.database, folder.hasher, Origin("alice"), PASSWORD + "x") is None
    assert sign_in(folder.database, folder.hasher, Origin("nobody"), PASSWORD) is None
    assert sign_in(folder.database, folder.hasher, Origin(SYSTEM), "") is None
    with folder.database.reading() as session:
        stored = [user.password for user in session.scalars(select(UserRow)) if user.password]
        assert len(stored) == 3
        assert all(text.startswith("$argon2id$") and PASSWORD not in text for text in stored)
        assert len(set(stored)) == 3  # salted: the passwords are the same


def test_argon2_has_its_authors_parameters_unless_a_test_asks_for_less(tmp_path):
    hasher = ServerFolder(tmp_path / "real").hasher
    assert (hasher.time_cost, hasher.memory_cost) >= (3, 65536)


def test_there_is_no_admin_and_no_password_from_the_start(tmp_path):
    fresh = ServerFolder(tmp_path / "fresh", settings=Settings(cheap=True))
    with fresh.database.writing() as session:
        assert not has_admin(session)
        with pytest.raises(InvalidInput, match="10 to 200"):
            add_user(session, fresh.hasher, "root", "short", "admin")
        with pytest.raises(InvalidInput, match="lowercase letters"):
            add_user(session, fresh.hasher, "<b>", PASSWORD)
        add_user(session, fresh.hasher, "root", generate_password(), "admin")
        assert has_admin(session)
        with pytest.raises(InvalidInput, match="name root is already taken"):
            add_user(session, fresh.hasher, "root", PASSWORD)
        with pytest.raises(UnknownName, match="root"):
            find_user(session, "rot")


def test_sign_ins_that_fail_are_slowed_down_by_name_and_address(folder, users):
    def attempt(name, address, password=PASSWORD):
        return sign_in(folder.database, folder.hasher, Origin(name, address), password)

    for _ in range(5):
        assert attempt("alice", "10.0.0.1", "wrong password") is None
    with pytest.raises(TooManyAttempts, match="15 minutes"):
        attempt("alice", "10.0.0.1")
    assert attempt("alice", "10.0.0.2") is not None
    assert attempt("bob", "10.0.0.1") is not None
    for number in range(25):
        attempt(f"user{number}", "10.0.0.1", "wrong password")
    with pytest.raises(TooManyAttempts):  # one address tries many names
        attempt("bob", "10.0.0.1")
    with folder.database.reading() as session:
        assert session.scalar(select(func.count()).where(AuditRow.action == FAILED)) == 30


def test_a_session_ends_with_sign_out_with_another_password_and_with_the_user(folder, users):
    with folder.database.writing() as session:
        alice = find_user(session, "alice")
        one, two, three = (start_session(session, alice) for _ in range(3))
        assert viewer_of_session(session, one) == users["alice"]
        assert session.scalar(select(SignInRow.digest).where(SignInRow.digest == one)) is None  # hashed
        end_session(session, one)
        assert viewer_of_session(session, one) is None
        session.get_one(SignInRow, digest_of_secret(two)).expires = 1.0
        session.flush()
        assert viewer_of_session(session, two) is None
        change_password(session, folder.hasher, alice, PASSWORD + "!")
        session.flush()
        assert viewer_of_session(session, three) is None
        four = start_session(session, alice)
        set_active(session, alice, active=False)
        session.flush()
        assert viewer_of_session(session, four) is None
    assert sign_in(folder.database, folder.hasher, Origin("alice"), PASSWORD + "!") is None


def test_a_token_has_the_scopes_that_it_was_given_and_is_kept_as_a_hash(folder, users):
    with folder.database.writing() as session:
        secret = make_token(session, users["root"], "laptop", frozenset(["read"]))
        assert session.scalars(select(TokenRow.digest)).all() == [digest_of_secret(secret)]
        viewer = viewer_of_token(session, secret)
        assert (viewer.name, viewer.scopes, viewer.is_admin, viewer.may_submit) == ("root", {"read"}, False, False)
        assert viewer_of_token(
            session, make_token(session, users["root"], "all", frozenset(["admin", "read"]))
        ).is_admin
        assert viewer_of_token(session, secret[:-1]) is None
        with pytest.raises(InvalidInput, match="only admins can create a token"):
            make_token(session, users["alice"], "mine", frozenset(["admin"]))
        with pytest.raises(InvalidInput, match="scopes"):
            make_token(session, users["alice"], "mine", frozenset(["all"]))
        session.scalar(select(TokenRow).where(TokenRow.name == "laptop")).expires = 1.0
        session.flush()
        assert viewer_of_token(session, secret) is None


def test_a_form_is_known_by_the_key_and_the_cookie_that_it_was_made_for(folder):
    mark = csrf_token(folder.secret, "cookie")
    assert is_form_mark(folder.secret, "cookie", mark)
    assert not is_form_mark(folder.secret, "other", mark)
    assert not is_form_mark(folder.secret, "", csrf_token(folder.secret, ""))
    assert not is_form_mark(b"0" * 32, "cookie", mark)


def test_what_is_private_is_in_no_query_of_another(folder, users, embedded, add):
    public = add(users["alice"], "attack", "named", "foolbox:pgd", name="shown", visibility="public")
    private = add(users["alice"], "attack", "named", "foolbox:fgsm", name="hidden")
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]]}
    with folder.database.writing() as session:
        shown = submit(session, folder, users["alice"], TaskRequest({**settings, "attacks": [public]}, "", "public")).id
        hidden = submit(
            session, folder, users["alice"], TaskRequest({**settings, "attacks": [public, private]}, "", "public")
        ).id
        secret = submit(
            session, folder, users["alice"], TaskRequest({**settings, "attacks": [public]}, "", "private")
        ).id
        for number in (shown, hidden, secret):
            parts = {"model_id": embedded["demo:mnist-lenet5"], "attack_id": public, "data_id": embedded["demo:mnist"]}
            about = {"key": f"k{number}", "file": "f", "digest": "d", "state": "done", "model": "m", "attack": "a"}
            rest = {"norm": "linf", "knowledge": "white-box", "images": 1, "created": 1.0}
            session.add(CellRow(task_id=number, **parts, **about, **rest))
        session.flush()
        for viewer, components, tasks in (
            (users["alice"], {public, private}, {shown, hidden, secret}),
            (users["root"], {public, private}, {shown, hidden, secret}),
            (users["bob"], {public}, {shown}),
            (VISITOR, {public}, {shown}),
        ):
            seen = {row.id for row in session.scalars(components_for(viewer))} - set(embedded.values())
            assert seen == components
            assert {row.id for row in session.scalars(tasks_for(viewer))} == tasks
            assert {row.task_id for row in session.scalars(cells_for(viewer))} == tasks
        for find, number in ((find_component, private), (find_task, hidden), (find_task, secret)):
            with pytest.raises(NotFoundError, match="that you can see"):
                find(session, users["bob"], number)
        with pytest.raises(NotFoundError, match="that you can see"):  # as of a number that nothing has
            find_component(session, users["bob"], 99999)


def test_a_component_that_becomes_private_takes_its_tasks_along(folder, users, embedded, add):
    number = add(users["alice"], "attack", "named", "foolbox:pgd", visibility="public")
    settings = {"models": [embedded["demo:mnist-lenet5"]], "data": [embedded["demo:mnist"]], "attacks": [number]}
    with folder.database.writing() as session:
        submit(session, folder, users["bob"], TaskRequest(settings, "", "public"))
        before = session.get_one(FactRow, "seen").value
        change_card(session, users["alice"], number, {"visibility": "private"})
        assert session.get_one(FactRow, "seen").value == before + 1
        assert session.scalars(tasks_for(users["bob"])).all() == []
        with pytest.raises(NotFoundError):
            submit(session, folder, users["bob"], TaskRequest(settings, "", "public"))


def test_only_the_owner_or_an_admin_changes_what_is_there(folder, users, embedded, add):
    number = add(users["alice"], "attack", "named", "foolbox:pgd", visibility="public")
    reader = Viewer(users["alice"].id, "alice", scopes=frozenset(["read"]))
    with folder.database.writing() as session:
        for viewer in (users["bob"], VISITOR, reader):
            with pytest.raises(ForbiddenError):
                change_card(session, viewer, number, {"description": "mine now"})
            with pytest.raises(ForbiddenError):
                delete(session, folder, viewer, number, Origin("bob"))
        with pytest.raises(ForbiddenError, match="may submit"):
            submit(session, folder, VISITOR, TaskRequest({}))
        assert change_card(session, users["root"], number, {"description": "checked"}).description == "checked"
        assert delete(session, folder, users["alice"], number, Origin("alice")) == "deleted"


def test_keys_are_for_the_server_alone_and_the_same_next_time(folder):
    first = folder.read_key("signing.key")
    path = folder.path / "signing.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert folder.read_key("signing.key") == first
    path.chmod(0o644)
    with pytest.raises(Unavailable, match="chmod 600"):
        folder.read_key("signing.key")


def test_a_database_of_another_version_and_a_folder_of_another_kind_are_refused(folder, tmp_path):
    with folder.database.writing() as session:
        session.get_one(FactRow, "version").value = 99
    with pytest.raises(StoreMismatch, match="version 3 to 5, got version 99"):
        ServerFolder(folder.path, folder.database.address)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("")
    with pytest.raises(InvalidInput, match="a server's folder or an empty one"):
        ServerFolder(tmp_path / "mine")
    for wrong in ("mysql://u:p@h/d", "nonsense"):
        with pytest.raises(InvalidInput, match="expected"):
            ServerFolder(tmp_path / "other", wrong)
