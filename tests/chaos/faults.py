"""The steps at which a server can be made to die, by where they are in its code."""

from __future__ import annotations

AUTHORITY = "pennon.commits.authority:CommitAuthority"
LOCAL = "pennon.storage.local:LocalFileIO"
REMOTE = "pennon.storage.object_store:ObjectStoreFileIO"

#: Before a version is recorded.
STAGE = f"before {AUTHORITY}.stage"
STAGED = f"after {AUTHORITY}.stage"
RECORD = f"after {AUTHORITY}.record_version"
#: After that.
PUBLISH = f"before {AUTHORITY}.publish"
PUBLISH_FILE = f"before {LOCAL}.publish_if_absent"
UNSTAGE = f"before {LOCAL}.remove"
PUBLISHED_FILE = f"after {LOCAL}.publish_if_absent"
REMOTE_PUBLISH_FILE = f"before {REMOTE}.publish_if_absent"
REMOTE_UNSTAGE = f"before {REMOTE}.remove"
REMOTE_PUBLISHED_FILE = f"after {REMOTE}.publish_if_absent"
FINALIZE = "before pennon.catalog.versions:finalize"

#: Inside the transactions that change the catalog.
INSERT = "after pennon.catalog.tables:insert"
RENAME = "after pennon.catalog.tables:rename"
SCHEDULE = "after pennon.tables.removal:Removal.schedule"
#: After those that drop.
REMOVE = "before pennon.tables.removal:Removal.remove"
REMOVE_FOLDER = f"before {LOCAL}.remove_all"
REMOVE_TREE = "before shutil:rmtree"
DELETE_GARBAGE = "before pennon.catalog.garbage:delete"

ANSWER = "before pennon.server.http.exchange:Exchange.respond"

FAULTS = (
    STAGE,
    STAGED,
    RECORD,
    PUBLISH,
    PUBLISH_FILE,
    UNSTAGE,
    PUBLISHED_FILE,
    REMOTE_PUBLISH_FILE,
    REMOTE_UNSTAGE,
    REMOTE_PUBLISHED_FILE,
    FINALIZE,
    INSERT,
    RENAME,
    SCHEDULE,
    REMOVE,
    REMOVE_FOLDER,
    REMOVE_TREE,
    DELETE_GARBAGE,
    ANSWER,
)
