//! What a login that is no server admin misses, in sentences for people.
//!
//! One sentence for all that one right hides, so that ten thousand databases make no ten
//! thousand sentences. Who may read what: `chttpd_auth_request`, `chttpd_node`.

/// What is missing where a route of this label was forbidden.
pub(super) fn missing(route: &str) -> &'static str {
    match route {
        "membership" => {
            "the list of nodes (/_membership) wants a server admin: only nodes that hold copies of readable databases are known, and not whether they are up"
        }
        "shard_map" => {
            "the shard map (/_node/_local/_dbs) wants a server admin: databases are asked one by one, and orphans and missing copies are not seen"
        }
        "all_dbs" => {
            "the list of databases (/_all_dbs) wants a server admin, or [chttpd] admin_only_all_dbs = false: only databases that a channel's databases.include names in full are looked for"
        }
        "db_shards" | "database" | "design_docs" | "view_info" | "search_info" | "doc_shards" => {
            "some databases cannot be read, because the login is no member of them"
        }
        "reshard_jobs" => {
            "what is being split (/_reshard/jobs) wants a server admin: a shard being split may be taken for an orphan"
        }
        "active_tasks" => {
            "what runs (/_active_tasks) wants a server admin: compactions by others are not seen"
        }
        "smoosh_status" => "what smoosh does (/_smoosh/status) wants a server admin",
        "config" => "CouchDB's settings (/_config) want a server admin",
        _ => {
            "the nodes' own interface (/_node/...) wants a server admin: sizes of shards and files on disks are not seen"
        }
    }
}
