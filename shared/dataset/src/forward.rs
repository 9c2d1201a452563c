//! Datasets around another dataset.

/// Implements methods of [`Dataset`](crate::Dataset) by those of the dataset in a field:
/// `forward!(dataset: label name)`.
#[macro_export]
macro_rules! forward {
    ($field:ident: $($method:ident)*) => { $($crate::forward!(@$field $method);)* };
    (@$field:ident len) => { fn len(&self) -> u64 { self.$field.len() } };
    (@$field:ident is_empty) => { fn is_empty(&self) -> bool { self.$field.is_empty() } };
    (@$field:ident parts) => { fn parts(&self) -> Vec<$crate::MixPart> { self.$field.parts() } };
    (@$field:ident classes) => { fn classes(&self) -> &[String] { self.$field.classes() } };
    (@$field:ident label) => { fn label(&self, index: u64) -> u32 { self.$field.label(index) } };
    (@$field:ident name) => { fn name(&self, index: u64) -> String { self.$field.name(index) } };
    (@$field:ident names) => {
        fn names(&self, samples: std::ops::Range<u64>) -> Result<Vec<String>, $crate::ReadError> {
            self.$field.names(samples)
        }
    };
    (@$field:ident location) => {
        fn location(&self, index: u64) -> $crate::Location { self.$field.location(index) }
    };
    (@$field:ident sample_in) => {
        fn sample_in(&self, found: &std::fs::Metadata) -> Option<u64> { self.$field.sample_in(found) }
    };
    (@$field:ident header) => {
        fn header(&self, index: u64) -> Result<$crate::Header, $crate::ReadError> { self.$field.header(index) }
    };
    (@$field:ident read) => {
        fn read(
            &self,
            index: u64,
            header: &$crate::Header,
            offset: u64,
            out: &mut [u8],
        ) -> Result<(), $crate::ReadError> {
            self.$field.read(index, header, offset, out)
        }
    };
    (@$field:ident read_within) => {
        fn read_within(
            &self,
            index: u64,
            header: &$crate::Header,
            offset: u64,
            memory: &mut [u8],
            place: std::ops::Range<usize>,
        ) -> Result<(), $crate::ReadError> {
            self.$field.read_within(index, header, offset, memory, place)
        }
    };
    (@$field:ident pieces) => {
        fn pieces(
            &self,
            index: u64,
            header: &$crate::Header,
            fidelity: Option<ddlp_pixels::Fidelity>,
            pieces: &mut Vec<$crate::Piece>,
        ) -> Result<u64, $crate::ReadError> {
            self.$field.pieces(index, header, fidelity, pieces)
        }
    };
    (@$field:ident header_extent) => {
        fn header_extent(&self, index: u64) -> std::ops::Range<u64> { self.$field.header_extent(index) }
    };
    (@$field:ident header_in) => {
        fn header_in(&self, index: u64, bytes: &[u8]) -> Option<$crate::Header> { self.$field.header_in(index, bytes) }
    };
    (@$field:ident read_many) => {
        fn read_many(&self, reads: &mut [$crate::ExtentRead<'_>]) -> Result<(), $crate::ReadError> {
            self.$field.read_many(reads)
        }
    };
    (@$field:ident start_reads) => {
        fn start_reads<'r>(&'r self, reads: Vec<$crate::ExtentRead<'r>>) -> $crate::Reading<'r, $crate::ReadError> {
            self.$field.start_reads(reads)
        }
    };
    (@$field:ident requests) => { fn requests(&self) -> Option<$crate::Requests> { self.$field.requests() } };
    (@$field:ident cache_use) => { fn cache_use(&self) -> Option<$crate::CacheUse> { self.$field.cache_use() } };
    (@$field:ident fetch_depth) => { fn fetch_depth(&self) -> $crate::FetchDepth { self.$field.fetch_depth() } };
    (@$field:ident comes_over_network) => {
        fn comes_over_network(&self) -> bool { self.$field.comes_over_network() }
    };
    (@$field:ident in_memory) => {
        fn in_memory(&self, index: u64) -> Option<ddlp_pixels::Source<'_>> { self.$field.in_memory(index) }
    };
    (@$field:ident sample) => {
        fn sample<'a>(
            &'a self,
            index: u64,
            buf: &'a mut Vec<u8>,
        ) -> Result<ddlp_pixels::Source<'a>, $crate::ReadError> {
            self.$field.sample(index, buf)
        }
    };
    (@$field:ident stored) => {
        fn stored<'a>(&'a self, index: u64, buf: &'a mut Vec<u8>) -> Result<$crate::Stored<'a>, $crate::ReadError> {
            self.$field.stored(index, buf)
        }
    };
    (@$field:ident announce) => {
        fn announce(&self, indices: &[u64], ahead: $crate::Ahead) { self.$field.announce(indices, ahead); }
    };
    (@$field:ident prefetch) => {
        fn prefetch(&self, index: u64, half: $crate::Half) { self.$field.prefetch(index, half); }
    };
    (@$field:ident fit_memory) => {
        fn fit_memory(&self, available_bytes: u64) -> std::io::Result<bool> { self.$field.fit_memory(available_bytes) }
    };
    (@$field:ident check) => { fn check(&self) -> Result<(), $crate::Unavailable> { self.$field.check() } };
    (@$field:ident check_damage) => {
        fn check_damage(&self) -> Result<(), $crate::Unavailable> { self.$field.check_damage() }
    };
    (@$field:ident read_again) => { fn read_again(&self, index: u64) { self.$field.read_again(index); } };
    (@$field:ident interrupt) => { fn interrupt(&self) { self.$field.interrupt(); } };
    (@$field:ident silences) => { fn silences(&self) -> $crate::Silences { self.$field.silences() } };
    (@$field:ident identity) => { fn identity(&self) -> $crate::Identity { self.$field.identity() } };
    (@$field:ident kind) => { fn kind(&self) -> &'static str { self.$field.kind() } };
    (@$field:ident decoders) => { fn decoders(&self) -> $crate::Decoders { self.$field.decoders() } };
    (@$field:ident bundles) => {
        fn bundles(&self) -> std::io::Result<Option<$crate::Bundles>> { self.$field.bundles() }
    };
    (@$field:ident scan_groups) => {
        fn scan_groups(&self) -> Option<&ddlp_pixels::ScanGroups> { self.$field.scan_groups() }
    };
    (@$field:ident left_out) => { fn left_out(&self) -> u64 { self.$field.left_out() } };
    (@$field:ident rejected) => { fn rejected(&self) -> u64 { self.$field.rejected() } };
    (@$field:ident left_out_names) => { fn left_out_names(&self) -> &[String] { self.$field.left_out_names() } };
    (@$field:ident export) => { fn export(&self) -> Option<&$crate::PackFile> { self.$field.export() } };
    (@$field:ident export_blocks) => {
        fn export_blocks(&self) -> Option<&dyn $crate::pack::Blocks> { self.$field.export_blocks() }
    };
    (@$field:ident bytes_read) => { fn bytes_read(&self) -> $crate::BytesRead { self.$field.bytes_read() } };
    (@$field:ident is_resident) => { fn is_resident(&self) -> bool { self.$field.is_resident() } };
}
