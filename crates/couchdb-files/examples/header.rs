//! Prints the newest valid header of a CouchDB file.
//!
//! ```text
//! cargo run -p couchdb-files --example header -- crates/couchdb-files/tests/data/updates.couch
//! ```
//!
//! The file is opened read-only and may be in use by a running CouchDB.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use couchdb_files::{Bytes, DbHeader, Header, OpenAction, Role, ViewHeader};
use std::{
    env,
    error::Error,
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

/// An open file. The crate never opens one itself.
struct File {
    file: fs::File,
    size: u64,
}

impl Bytes for File {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(offset))?;
        file.read(buf)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let argument = env::args_os().nth(1).ok_or("usage: header FILE")?;
    let path = Path::new(&argument);
    let file = fs::File::open(path)?;
    let size = file.metadata()?.len();

    let read = couchdb_files::read(&File { file, size });

    // The name decides what CouchDB would do with the file, even if it has no valid header.
    let role = Role::of(&path.file_name().unwrap_or_default().to_string_lossy());
    println!("role:            {}", role.label());
    println!("CouchDB 3.5:     {}", OpenAction::of(role, &read));

    let headed = read?;
    println!("file size:       {} bytes", headed.file_bytes);
    println!("header offset:   {}", headed.position.at);
    println!("checksum:        {}", headed.position.checksum.label());
    println!("after header:    {} bytes", headed.position.bytes_after);
    match &headed.header {
        Header::Db(header) | Header::Compaction(header) => print_db(header),
        Header::View(header) => print_view(header),
    }
    Ok(())
}

fn print_db(header: &DbHeader) {
    println!("disk version:    {}", header.disk_version);
    println!("update seq:      {}", header.update_seq);
    println!("compacted seq:   {}", header.compacted_seq);
    println!("documents:       {}", number_or_unknown(header.docs));
    println!("deleted:         {}", number_or_unknown(header.deleted_docs));
    println!("active bytes:    {}", number_or_unknown(header.active));
    println!("external bytes:  {}", number_or_unknown(header.external));
}

fn print_view(header: &ViewHeader) {
    println!("signature:       {}", header.signature);
    let Some(index) = &header.committed else {
        println!("index:           nothing committed yet");
        return;
    };
    println!("update seq:      {}", index.update_seq);
    println!("purge seq:       {}", index.purge_seq);
    println!("active bytes:    {}", number_or_unknown(index.active));
    println!("external bytes:  {}", number_or_unknown(index.external));
    for (number, group) in index.views.iter().enumerate() {
        println!("rows in tree {number}:  {}", number_or_unknown(group.rows));
    }
}

/// A number, or `unknown` if the header does not contain it.
fn number_or_unknown(number: Option<u64>) -> String {
    number.map_or_else(|| "unknown".to_owned(), |number| number.to_string())
}
