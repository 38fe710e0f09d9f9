//! The effects of missing rights, in sentences for people.
//!
//! One sentence for everything that one missing right hides, so that ten thousand databases do not
//! produce ten thousand sentences. The rights: `chttpd_auth_request`, `chttpd_node`.

/// What cannot be read if a route with this label is forbidden.
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
