//! What an operation does and returns, beyond its summary: for readers of the document and of the
//! book, whose table of routes is made from it.

/// More about an operation, if its summary does not say everything.
pub(super) fn of(operation: &str) -> Option<&'static str> {
    Some(match operation {
        "status" => {
            "Version, mode, whether the cluster is `simulated` and what that means (`simulation`), the state of each URL of `couchdb.urls` (`couchdb`), nodes, the current and the last sweep, the state of the feeds, what could not be read, missing rights, and `suspensions`: `scope`, `since`, `by` whom, `why`, and all of it in a sentence (`says`)."
        }
        "queue" => "Each queue with its size, limits, reclaimable bytes and its targets.",
        "plan" => {
            "For each queue, how many targets are refused for which reason; closed gates; `suspensions` as in `status`; `orders` that wait; `builds` of indexes; and, page by page, the refused targets with their reasons in a sentence."
        }
        "whatIf" => {
            "For each of `nothing` (compacted), `smoosh` (as it is set on the cluster, or with CouchDB's defaults: the field `smoosh` says which), `in force`, and `proposed`: mean and peak waste, bytes written anew and compactions in a day, the longest wait, what stays undone, and over time the waste, the files and each volume's free space, with the date on which it is full. Sizes go on growing as they did; 409 while no file was watched for ten minutes. A million targets take many seconds, and requests wait for one another. With `channels=smoosh-as-rent`, `as_rent` has channels by rent whose horizons keep the mean waste of smoosh, as `import smoosh --as rent` prints them."
        }
        "scorecard" => {
            "Two sides, `real` and `advised`: mean and peak waste, bytes freed and written anew, compactions, and the most extra space at a time; `conflicts` with other programs' compactions; the seconds that this covers, and those that are missing; and `says`, whether to switch to enforce. Null where nothing is known."
        }
        "facts" => {
            "Shard by shard and part by part, 2,000 per page; `next` is the `after` of the next page."
        }
        "jobs" => {
            "Phase, progress, since when, when CouchDB last reported progress, bytes they may still need; and when each node was last asked."
        }
        "explain" => {
            "The targets of a name, each with `why`, a sentence; `fresh`, the rule by which its facts are fresh (`measured` or `followed`); `start`, what would be sent (`request`, and `url` if an address is known); `ordered`, the order that waits for it; and `part_of`, for a view's part, the view that is queued instead."
        }
        "history" => {
            "Bytes before, after, predicted and freed, who started it and who had ordered it, `result` and why. For jobs that others started, `started_at` is the time their node reports; their size before is null if nothing was read near the start. `next_before` is the `before` of the next page."
        }
        "events" => {
            "Continue after `last_seq` or, if there is `more`, after the last event; a `last_seq` below your own `since` belongs to another journal."
        }
        "backup" => {
            "What `recliner backup` receives. 403 without `--web.enable-admin-api`, except over the Unix socket; 409 while another one is in progress. HEAD makes no copy, so it knows no length."
        }
        "suspend" => {
            "Returns `since`, `by`, `why`, `already`, and how many compactions are still `running` there."
        }
        "resume" => "Returns what was `lifted` and what is `remaining`.",
        "compact" => {
            "Returns the `requests` that will be sent; if it does not start at once, what it `waits` for (`refusal`, `why`), and `until` when at most."
        }
        "release" => "Returns those `targets`.",
        "rescan" => "Returns whether it `begins` at once, or after the running one.",
        "flush" => "Returns how many `targets` were removed.",
        "metrics" => {
            "Prometheus text 0.0.4 or OpenMetrics 1.0, as the client accepts; gzip if the client accepts it."
        }
        "serviceDiscovery" => {
            "Each node's own address, with its name; 503 before the first sweep has ended."
        }
        "dbUpdates" => "GET only; unknown parameters are ignored.",
        "healthy" => "200 while the process responds.",
        "ready" => {
            "200 after the first sweep over the nodes that answer, otherwise 503 with the reason."
        }
        "reload" | "quit" => "403 without `--web.enable-lifecycle`.",
        _ => return None,
    })
}
