"""The steps at which a server can be made to die, by where they are in its code."""

from __future__ import annotations

AUTHORITY = "pennon.commits.authority:CommitAuthority"
LOCAL = "pennon.storage.local:LocalFileIO"
REMOTE = "pennon.storage.object_store:ObjectStoreFileIO"

#: Before a version is recorded.
STAGE = f"before {AUTHORITY}.stage"
STAGED = f"after {AUTHORITY}.stage"
RECORD = f"after {AUTHORITY}.record"
#: After that.
PUBLISH = f"before {AUTHORITY}.publish"
PROMOTE = f"before {LOCAL}.publish_if_absent"
UNSTAGE = f"before {LOCAL}.remove"
PROMOTED = f"after {LOCAL}.publish_if_absent"
REMOTE_PROMOTE = f"before {REMOTE}.publish_if_absent"
REMOTE_UNSTAGE = f"before {REMOTE}.remove"
REMOTE_PROMOTED = f"after {REMOTE}.publish_if_absent"
SETTLE = "before pennon.catalog.versions:settle"

#: Inside the transactions that change the catalog.
INSERT = "after pennon.catalog.tables:insert"
RENAME = "after pennon.catalog.tables:rename"
SCHEDULE = "after pennon.tables.removal:Removal.schedule"
#: After those that drop.
REMOVE = "before pennon.tables.removal:Removal.remove"
REMOVE_FOLDER = f"before {LOCAL}.remove_all"
REMOVE_TREE = "before shutil:rmtree"
FORGET = "before pennon.catalog.garbage:remove"

ANSWER = "before pennon.server.http.exchange:Exchange.answer"

FAULTS = (
    STAGE,
    STAGED,
    RECORD,
    PUBLISH,
    PROMOTE,
    UNSTAGE,
    PROMOTED,
    REMOTE_PROMOTE,
    REMOTE_UNSTAGE,
    REMOTE_PROMOTED,
    SETTLE,
    INSERT,
    RENAME,
    SCHEDULE,
    REMOVE,
    REMOVE_FOLDER,
    REMOVE_TREE,
    FORGET,
    ANSWER,
)
