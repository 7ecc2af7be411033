"""A server's folder on SQLite, or on PostgreSQL where `DAVYLAMP_TEST_POSTGRES` has the address of one to write to."""

import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

from davylamp.server.accounts.users import add_user
from davylamp.server.components.blobs import take_upload
from davylamp.server.components.registration import ComponentCard, register
from davylamp.server.components.validation import ComponentRequest
from davylamp.server.database.permissions import ALL_SCOPES, Viewer
from davylamp.server.database.records import ComponentRow
from davylamp.server.folder import ServerFolder, Settings
from davylamp.server.tasks import task_process, work
from davylamp.server.tasks.sandboxed import ProcessExit
from davylamp.server.tasks.seeds import seed_components
from davylamp.server.web.application import make_application
from davylamp.tools.server.started import fresh_database

PASSWORD = "a long password"
ATTACK = """
def sign_step(model, inputs, labels, epsilon):
    inputs = inputs.clone().requires_grad_(True)
    loss = __import__("torch").nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    return (inputs + epsilon * inputs.grad.sign()).clamp(0, 1).detach()
sign_step.norm = "linf"
"""
DEFENCE = """
import torch

class Rounded(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs):
        return self.model((inputs * 7).round() / 7 + inputs - inputs.detach())

def rounded(classifier):
    return Rounded(classifier)
"""


POSTGRES = os.environ.get("DAVYLAMP_TEST_POSTGRES", "")
# What they test is as it is whatever the database: strangers' programs, and pages in a browser.
ON_SQLITE = {"test_server_browser.py", "test_server_hostile.py", "test_server_in_a_clone.py"}


def pytest_collection_modifyitems(config, items):
    """On PostgreSQL, run what uses the database alone: neither sandboxes nor browsers."""
    if POSTGRES:
        others = [
            item
            for item in items
            if item.path.name in ON_SQLITE or "sandbox" in item.fixturenames or "database" not in item.fixturenames
        ]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


@pytest.fixture
def database():
    """A database of its own; "" is SQLite in the folder."""
    with fresh_database(POSTGRES) as address:
        yield address


@pytest.fixture
def folder(tmp_path, database):
    made = ServerFolder(tmp_path / "server", database, Settings(cheap=True, trust=True, largest=8, quota=16))
    with made.database.writing() as session:
        seed_components(session)
    yield made
    made.database.close()


@pytest.fixture
def users(folder):
    """Viewers by name: alice and bob are users, root is an admin."""
    viewers = {}
    with folder.database.writing() as session:
        for name, role in (("alice", "user"), ("bob", "user"), ("root", "admin")):
            user = add_user(session, folder.hasher, name, PASSWORD, role)
            viewers[name] = Viewer(user.id, name, role == "admin", ALL_SCOPES)
    return viewers


@pytest.fixture
def embedded(folder):
    """Numbers of the embedded components, by entry."""
    from sqlalchemy import select

    with folder.database.reading() as session:
        return {row.entry: row.id for row in session.scalars(select(ComponentRow))}


@pytest.fixture
def add(folder):
    """Register a file's content as a component: (viewer, kind, form, entry, file name, bytes, card)."""

    def register_one(viewer, kind, form, entry, file_name="", content=None, **card):
        upload = None if content is None else take_upload(folder.uploads, [content], folder.settings.largest)
        wish = ComponentRequest(kind, form, entry, file_name, upload and upload.path)
        with folder.database.writing() as session:
            return register(session, folder, viewer, ComponentCard(**{"name": "thing", **card}), wish, upload).id

    return register_one


@pytest.fixture
def digit_file(tmp_path):
    """Eight images of MNIST's size, as the bytes of an NPZ file."""
    images = np.random.default_rng(0).random((8, 1, 28, 28), dtype=np.float32)
    np.savez(tmp_path / "digits.npz", inputs=images, labels=np.arange(8))
    return (tmp_path / "digits.npz").read_bytes()


def run_here(command, scratch, limits, *, watch, environment):
    """In place of a new process, which takes seconds to start: the task's work in a thread of this one."""
    ended = []

    def work_on():
        before = Path.cwd()
        os.chdir(scratch / "room")
        try:
            task_process.write_json(scratch / "outcome.json", task_process.run_task(scratch))
            ended.append(0)
        except task_process.DavylampError as error:
            task_process.write_json(scratch / "outcome.json", {"error": str(error)})
            ended.append(1)
        finally:
            os.chdir(before)

    thread = threading.Thread(target=work_on, name="task")
    thread.start()
    reason = ""
    while thread.is_alive() and not reason:
        thread.join(0.02)
        reason = watch()
    thread.join()
    return ProcessExit(0, reason)


@pytest.fixture
def in_process(monkeypatch):
    monkeypatch.setattr(work, "run_sandboxed", run_here)


@pytest.fixture
def behind_proxy():
    """Whether the server is started with --proxy."""
    return False


@pytest.fixture
def address(folder, users, behind_proxy):
    """Where the server listens, as it is served by the command."""
    import uvicorn

    from davylamp.server.web.run_server import configure

    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = configure(make_application(folder), proxy=behind_proxy)
        config.timeout_graceful_shutdown = 1
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()
