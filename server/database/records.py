"""Tables of a server's database: users, components, files, tasks, runs and the audit log. Times are Unix timestamps."""

from typing import Any, Literal

from sqlalchemy import JSON, BigInteger, Float, ForeignKey, Index, Integer, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

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
    """A named number about the whole server, such as the version of the database tables."""

    __tablename__ = "facts"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[int] = mapped_column(Integer)


class UserRow(ServerTable):
    """User account.

    `password` is an Argon2 hash; "" if the user cannot sign in. A user who is not `active` is blocked. `hours` limits
    the computing time for the user's tasks, in hours per seven days; None for no limit.
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
    """Browser session of a user. `digest` is the SHA-256 hash of the session cookie's value."""

    __tablename__ = "sign_ins"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    expires: Mapped[float] = mapped_column(Float)


class TokenRow(ServerTable):
    """API token of a user. `digest` is the SHA-256 hash of the token. `scopes` are permissions, separated by spaces."""

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
    """Stored file of one or several components. `digest` is its SHA-256 hash, and `size` is its size in bytes."""

    __tablename__ = "blobs"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    created: Mapped[float] = mapped_column(Float)


class ComponentRow(ServerTable):
    """Component: a model, an attack, a defence or a data set that tasks can use.

    `ComponentRequest` explains `form` and `entry`. `file_name` is the name of the component's file in tasks, and `blob`
    is the SHA-256 hash of this file; "" and None if there is no file. Only components whose `state` is "active" can be
    used in new tasks.
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
    creator: Mapped[UserRow] = relationship(lazy="joined", innerjoin=True)


class TaskRow(ServerTable):
    """Task: an evaluation that a user submitted.

    `settings` are the result of `read_settings`. `images` is the number of images over all runs, of which `images_done`
    are finished. `seconds` is the computing time of all attempts. `lease` is the secret of the worker that runs the
    task; "" if no worker runs the task. `signature` is "" until the task is finished.

    `score`, `score_low` and `score_high` are the mean accuracy under attack with its 95 % interval. `effects` are the
    effects of the task's defences. `TaskSummary` explains these columns. They are None until they are computed.
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
    owner: Mapped[UserRow] = relationship(lazy="joined", innerjoin=True)
    components: Mapped[list[ComponentRow]] = relationship(secondary="parts", order_by=ComponentRow.id)


class TaskComponentRow(ServerTable):
    """A pair of a task and one of its components."""

    __tablename__ = "parts"
    task_id: Mapped[int] = mapped_column(ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True)
    component_id: Mapped[int] = mapped_column(ForeignKey("components.id"), primary_key=True, index=True)


class CellRow(ServerTable):
    """Finished or failed run of a task.

    `file` contains the results of the run, and `digest` is the SHA-256 hash of this file. `model_id`, `attack_id`,
    `defence_id` and `data_id` are numbers of components. For a worst case over several attacks, `attack_id` is None and
    `attack_ids` lists the attacks.

    `parameters` are the parameters of the attack. `terms` are other settings in which runs of the same components can
    differ, such as the target rule. Both columns are JSON with sorted names.

    `attacked` and `fooled` are numbers of images without undecided results. For a randomised model, each image adds its
    rate of fooled samples to `fooled`. `reused` says whether the run was copied from an earlier task.
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
    """Rank of a component on a public leaderboard of a data set, from a given time on.

    `tasks` are the numbers of the tasks from whose runs the rank was computed. Only viewers who may see all these tasks
    may see the rank.
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
    """Entry of the audit log: time, user name, address, action, and the object of the action. Entries never change."""

    __tablename__ = "audit"
    __table_args__ = (Index("audit_by_action", "action", "time"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[float] = mapped_column(Float)
    who: Mapped[str] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(64), default="")
    action: Mapped[str] = mapped_column(String(64))
    about: Mapped[str] = mapped_column(String(500), default="")
