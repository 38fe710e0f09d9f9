//! The effects of missing rights, in sentences for people.
//!
//! One sentence for everything that one missing right hides, so that ten thousand databases do not
//! produce ten thousand sentences. CouchDB checks the rights in `chttpd_auth_request` and
//! `chttpd_node`.

/// What cannot be read if a route with this label is forbidden.
pub(super) fn missing(route: &str) -> &'static str {
    match route {
        "membership" => {
            "the list of nodes (/_membership) requires a server admin: recliner knows only nodes with copies of readable databases, and not whether they are up or the sizes of their files"
        }
        "shard_map" => {
            "the shard map (/_node/_local/_dbs) requires a server admin: databases are read one by one, and orphans and missing copies are not detected"
        }
        "all_dbs" => {
            "the list of databases (/_all_dbs) requires a server admin, or [chttpd] admin_only_all_dbs = false: recliner reads only databases that a channel's databases.include names in full"
        }
        "db_shards" | "database" | "design_docs" | "view_info" | "search_info" => {
            "some databases cannot be read, because the login is not a member of them"
        }
        "reshard_jobs" => {
            "the list of splits (/_reshard/jobs) requires a server admin: orphans and missing copies are not detected, and a shard may be compacted while it is split"
        }
        "active_tasks" => {
            "the list of running tasks (/_active_tasks) requires a server admin: recliner does not see compactions that others started"
        }
        "smoosh_status" => "smoosh's status (/_smoosh/status) requires a server admin",
        "config" => "CouchDB's settings (/_config) require a server admin",
        _ => {
            "the nodes' own interface (/_node/...) requires a server admin: recliner does not see the sizes of shards and files"
        }
    }
}
