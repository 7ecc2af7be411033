"""Tables of a server's database: users, components, files, tasks, runs and the audit log. Times are Unix timestamps."""

from typing import Any, Literal

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Role = Literal["user", "admin"]
Kind = Literal["model", "attack", "defence", "data"]
Visibility = Literal["public", "private"]
ComponentState = Literal["active", "withdrawn", "archived"]
TaskState = Literal["waiting", "running", "done", "failed", "cancelled"]
KINDS: tuple[Kind, ...] = ("model", "attack", "defence", "data")
ENDED: tuple[TaskState, ...] = ("done", "failed", "cancelled")
VERSION = 5  # version of these tables; changes need a migration in migrations/versions/ and a new number
_JSON: Any = JSON


class ServerTable(DeclarativeBase):
    """Base class of all tables."""


class FactRow(ServerTable):
    """A named number about the whole server, such as the version of the database tables.

    Args:
        name: name of the number.
        value: the number.
    """

    __tablename__ = "facts"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[int] = mapped_column(Integer)


class UserRow(ServerTable):
    """User account.

    Args:
        id: number of the user.
        name: user name.
        password: Argon2 hash of the password. "" if the user cannot sign in.
        role: "user" or "admin".
        active: whether the user is not blocked.
        created: time of creation.
        hours: limit on computing time for the user's tasks, in hours per seven days. None for no limit.
    """

    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64), unique=True)
    password: Mapped[str] = mapped_column(String(256), default="")
    role: Mapped[str] = mapped_column(String(16), default="user")
    active: Mapped[bool] = mapped_column(default=True)
    created: Mapped[float] = mapped_column(Float)
    hours: Mapped[float | None] = mapped_column(Float)


class SignInRow(ServerTable):
    """Browser session of a user.

    Args:
        digest: SHA-256 hash of the session cookie's value.
        user_id: number of the user.
        expires: time at which the session expires.
    """

    __tablename__ = "sign_ins"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    expires: Mapped[float] = mapped_column(Float)


class TokenRow(ServerTable):
    """API token of a user.

    Args:
        id: number of the token.
        user_id: number of the user.
        name: name by which the user recognises the token.
        digest: SHA-256 hash of the token.
        scopes: permissions of the token, separated by spaces.
        created: time of creation.
        expires: time at which the token expires.
        used: not used; always 0.
    """

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(100))
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[str] = mapped_column(String(64))
    created: Mapped[float] = mapped_column(Float)
    expires: Mapped[float] = mapped_column(Float)
    used: Mapped[float] = mapped_column(Float, default=0.0)


class BlobRow(ServerTable):
    """Stored file of one or several components.

    Args:
        digest: SHA-256 hash of the file.
        size: size in bytes.
        created: time of creation.
    """

    __tablename__ = "blobs"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    created: Mapped[float] = mapped_column(Float)


class ComponentRow(ServerTable):
    """Component: a model, an attack, a defence or a data set that tasks can use.

    Args:
        id: number of the component.
        kind: "model", "attack", "defence" or "data".
        name: name of the component.
        version: version of the component.
        creator_id: number of the user to whom the component belongs.
        licence: licence; "" if not stated.
        visibility: "public" or "private".
        description: description by the owner.
        form: form in which the component is given, such as "named" or "code" (see `ComponentRequest`).
        entry: name, address, function or architecture, depending on the form (see `ComponentRequest`).
        file_name: name of the component's file in tasks; "" if there is no file.
        blob: SHA-256 hash of the component's file. None if there is no file.
        state: "active", "withdrawn" or "archived". Only active components can be used in new tasks.
        created: time of creation.
        changed: time of the last change.
    """

    __tablename__ = "components"
    __table_args__ = (UniqueConstraint("creator_id", "kind", "name", "version"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), index=True)
    name: Mapped[str] = mapped_column(String(64))
    version: Mapped[str] = mapped_column(String(32))
    creator_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    licence: Mapped[str] = mapped_column(String(100), default="")
    visibility: Mapped[str] = mapped_column(String(16), default="private")
    description: Mapped[str] = mapped_column(Text, default="")
    form: Mapped[str] = mapped_column(String(16))
    entry: Mapped[str] = mapped_column(String(500), default="")
    file_name: Mapped[str] = mapped_column(String(100), default="")
    blob: Mapped[str | None] = mapped_column(ForeignKey("blobs.digest"), index=True)
    state: Mapped[str] = mapped_column(String(16), default="active")
    created: Mapped[float] = mapped_column(Float)
    changed: Mapped[float] = mapped_column(Float)


class TaskRow(ServerTable):
    """Task: an evaluation that a user submitted. `TaskComponentRow` contains the components of a task.

    Args:
        id: number of the task.
        owner_id: number of the user who submitted the task.
        title: title of the task.
        settings: settings of the task, as returned by `read_settings`.
        visibility: "public" or "private".
        priority: priority among the tasks of the same owner.
        state: "waiting", "running", "done", "failed" or "cancelled".
        message: reason for a failure, or a summary of the results.
        created: time of submission.
        started: time at which a worker first started the task; 0 if no worker has started it.
        finished: time at which the task ended; 0 if it has not ended.
        images: number of images over all runs of the task, which is the total of the progress display.
        images_done: number of these images that are finished.
        seconds: computing time of all attempts, in seconds.
        attempts: number of times that a worker has leased the task.
        cancelling: whether the owner has cancelled the task and the worker must stop.
        lease: secret of the worker that has leased the task; "" if there is none.
        lease_until: time at which the lease expires.
        signature: signature of the finished task, 128 hexadecimal digits; "" if the task is not finished.
        score: mean accuracy under attack (see `summarise_task`). None before it is computed, or if it is undefined.
        score_low: lower bound of the 95 % interval of `score`.
        score_high: upper bound of the 95 % interval of `score`.
        effects: effects of the task's defences (see `TaskSummary`). None before they are computed.
    """

    __tablename__ = "tasks"
    __table_args__ = (Index("tasks_by_state", "state", "lease_until"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"), index=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    settings: Mapped[dict[str, Any]] = mapped_column(_JSON)
    visibility: Mapped[str] = mapped_column(String(16), default="private")
    priority: Mapped[int] = mapped_column(Integer, default=0)
    state: Mapped[str] = mapped_column(String(16), default="waiting")
    message: Mapped[str] = mapped_column(Text, default="")
    created: Mapped[float] = mapped_column(Float)
    started: Mapped[float] = mapped_column(Float, default=0.0)
    finished: Mapped[float] = mapped_column(Float, default=0.0)
    images: Mapped[int] = mapped_column(Integer, default=0)
    images_done: Mapped[int] = mapped_column(Integer, default=0)
    seconds: Mapped[float] = mapped_column(Float, default=0.0)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    cancelling: Mapped[bool] = mapped_column(default=False)
    lease: Mapped[str] = mapped_column(String(64), default="")
    lease_until: Mapped[float] = mapped_column(Float, default=0.0)
    signature: Mapped[str] = mapped_column(Text, default="")
    score: Mapped[float | None] = mapped_column(Float)
    score_low: Mapped[float | None] = mapped_column(Float)
    score_high: Mapped[float | None] = mapped_column(Float)
    effects: Mapped[list[dict[str, Any]] | None] = mapped_column(JSON(none_as_null=True))


class TaskComponentRow(ServerTable):
    """A pair of a task and one of its components."""

    __tablename__ = "parts"
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)
    component_id: Mapped[int] = mapped_column(ForeignKey("components.id"), primary_key=True, index=True)


class CellRow(ServerTable):
    """Finished or failed run of a task.

    Args:
        id: number of the run.
        task_id: number of the task.
        key: key of the run, which is equal for runs with the same settings.
        file: name of the file with the run's results.
        digest: SHA-256 hash of this file.
        state: "done" or "failed".
        reason: reason for a failure, or a note on invalid results.
        model_id: number of the attacked model's component.
        attack_id: number of the attack's component. None for a worst case over several attacks.
        attack_ids: numbers of the components of all attacks in the run.
        defence_id: number of the defence's component. None for an undefended model.
        data_id: number of the data's component.
        model: the engine's name of the model.
        attack: title of the attack.
        norm: norm of the threat model.
        epsilon: radius of the threat model. None for a minimum-norm attack.
        targeted: whether the attack is targeted.
        knowledge: attacker knowledge, such as "white-box".
        seed: random seed.
        parameters: parameters of the attack, as JSON with sorted names.
        terms: other settings in which runs of the same components can differ, such as the target rule, as JSON with
            sorted names.
        images: number of evaluated images.
        attacked: number of attacked images. Images with an undecided result are not counted.
        fooled: number of fooled images among these. For a randomised model, each image adds its rate of fooled samples.
        reused: whether the run was copied from an earlier task.
        created: time at which the run was recorded.
    """

    __tablename__ = "cells"
    __table_args__ = (UniqueConstraint("task_id", "key"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), index=True)
    key: Mapped[str] = mapped_column(String(32), index=True)
    file: Mapped[str] = mapped_column(String(100))
    digest: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text, default="")
    model_id: Mapped[int] = mapped_column(ForeignKey("components.id"), index=True)
    attack_id: Mapped[int | None] = mapped_column(ForeignKey("components.id"), index=True)
    attack_ids: Mapped[list[int]] = mapped_column(_JSON, default=list)
    defence_id: Mapped[int | None] = mapped_column(ForeignKey("components.id"), index=True)
    data_id: Mapped[int] = mapped_column(ForeignKey("components.id"), index=True)
    model: Mapped[str] = mapped_column(String(600))
    attack: Mapped[str] = mapped_column(String(600))
    norm: Mapped[str] = mapped_column(String(16))
    epsilon: Mapped[float | None] = mapped_column(Float)
    targeted: Mapped[bool] = mapped_column(default=False)
    knowledge: Mapped[str] = mapped_column(String(32))
    seed: Mapped[int] = mapped_column(BigInteger, default=0)
    parameters: Mapped[str] = mapped_column(Text, default="{}")
    terms: Mapped[str] = mapped_column(Text, default="{}")
    images: Mapped[int] = mapped_column(Integer)
    attacked: Mapped[int] = mapped_column(Integer, default=0)
    fooled: Mapped[float] = mapped_column(Float, default=0)
    reused: Mapped[bool] = mapped_column(default=False)
    created: Mapped[float] = mapped_column(Float)


class HistoryRow(ServerTable):
    """Rank of a component on a leaderboard, from a given time until the next row of the component and leaderboard.

    Args:
        id: number of the row.
        component_id: number of the component.
        data_id: number of the data's component, to which the leaderboard belongs.
        board: name of the leaderboard.
        time: time from which the component has this rank.
        rank: rank of the component.
        rank_low: best rank in the 95 % interval.
        rank_high: worst rank in the 95 % interval.
        subjects: number of components on the leaderboard.
        score: score of the component on the leaderboard.
        tasks: numbers of the tasks from whose runs the rank was computed. Only viewers who may see all these tasks may
            see the rank.
    """

    __tablename__ = "histories"
    id: Mapped[int] = mapped_column(primary_key=True)
    component_id: Mapped[int] = mapped_column(ForeignKey("components.id", ondelete="CASCADE"), index=True)
    data_id: Mapped[int] = mapped_column(ForeignKey("components.id", ondelete="CASCADE"))
    board: Mapped[str] = mapped_column(String(16))
    time: Mapped[float] = mapped_column(Float)
    rank: Mapped[int] = mapped_column(Integer)
    rank_low: Mapped[int] = mapped_column(Integer)
    rank_high: Mapped[int] = mapped_column(Integer)
    subjects: Mapped[int] = mapped_column(Integer)
    score: Mapped[float] = mapped_column(Float)
    tasks: Mapped[list[int]] = mapped_column(_JSON, default=list)


class AuditRow(ServerTable):
    """Entry of the audit log. Entries are never changed.

    Args:
        id: number of the entry.
        time: time of the action.
        who: user name in the request.
        address: network address of the client; "" for actions on the server's machine.
        action: the action, such as "signed in".
        about: the object of the action, such as the name of a component.
    """

    __tablename__ = "audit"
    __table_args__ = (Index("audit_by_action", "action", "time"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[float] = mapped_column(Float)
    who: Mapped[str] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(64), default="")
    action: Mapped[str] = mapped_column(String(64))
    about: Mapped[str] = mapped_column(String(500), default="")
