//! Graphs: captured work that is instantiated and launched.

use fake_device::{api, graphs};

api! {
    fn [cuGraphInstantiateWithFlags](out: Option<&mut u64>, graph: u64, flags: u64) {
        graphs::instantiate(out, graph, flags)
    }
    fn [cuGraphUpload](executable: u64, stream: u64) { graphs::upload(executable, stream) }
    fn [cuGraphLaunch](executable: u64, stream: u64) { graphs::launch(executable, stream) }
    fn [cuGraphExecDestroy](executable: u64) { graphs::destroy_executable(executable) }
    fn [cuGraphDestroy](graph: u64) { graphs::destroy(graph) }
    fn [cuGraphGetNodes](graph: u64, nodes: Option<&mut u64>, count: Option<&mut usize>) {
        graphs::nodes(graph, nodes, count)
    }
}
