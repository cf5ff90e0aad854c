//! Graphs: captured work that is instantiated and launched.

use fake_device::{api, graphs};

api! {
    fn [hipGraphInstantiateWithFlags](out: Option<&mut u64>, graph: u64, flags: u64) {
        graphs::instantiate(out, graph, flags)
    }
    fn [hipGraphUpload](executable: u64, stream: u64) { graphs::upload(executable, stream) }
    fn [hipGraphLaunch](executable: u64, stream: u64) { graphs::launch(executable, stream) }
    fn [hipGraphExecDestroy](executable: u64) { graphs::destroy_executable(executable) }
    fn [hipGraphDestroy](graph: u64) { graphs::destroy(graph) }
    fn [hipGraphGetNodes](graph: u64, nodes: Option<&mut u64>, count: Option<&mut usize>) {
        graphs::nodes(graph, nodes, count)
    }
}
