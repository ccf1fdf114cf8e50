"""Names of the files in a run's folder, for all who write and read them.

run.json, plan.json     settings and plan of the run
key, token              its secrets, and `revoked.json` with the invitations that were ended
spare                   folder of second copies of all these but the token
hub.json                where the hub is, for commands on its host
tape.jsonl, run.log     what happened, for programs and for people
metrics.jsonl           curves, `figures.json` all other figures, `summary.json` those of the end
final.safetensors       the model of the end
settings.json           all that the hub was started with, and `versions.json` its packages
standbys.json           where the standbys of this folder's syncer would be its next hubs
standby.json            in a standby's folder: its name, and where its key is
promote, promoted.json  in a standby's folder: that it shall go on, and what it goes on as
hub.lock                held by its hub, as `lock` is in the folder of a role by that role
ROLE, ROLE.epoch        the journal of a role, and a copy of its newest epoch
"""

SPEC_FILE = "run.json"
PLAN_FILE = "plan.json"
SPARE = "spare"
HUB_FILE = "hub.json"
KEY_FILE = "key"
TOKEN_FILE = "token"  # noqa: S105  the name of a file
REVOKED_FILE = "revoked.json"
TAPE_FILE = "tape.jsonl"
LOG_FILE = "run.log"
METRICS_FILE = "metrics.jsonl"
FIGURES_FILE = "figures.json"
SUMMARY_FILE = "summary.json"
FINAL_FILE = "final.safetensors"
SETTINGS_FILE = "settings.json"
VERSIONS_FILE = "versions.json"
STANDBYS_FILE = "standbys.json"
STANDBY_FILE = "standby.json"
PROMOTE_FILE = "promote"
PROMOTED_FILE = "promoted.json"
HUB_LOCK = "hub.lock"
JOURNAL_LOCK = "lock"


def epoch_file(role: str) -> str:
    return f"{role}.epoch"
