pub(super) mod files;
