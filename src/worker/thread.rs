//! A worker as a thread: the same loop over the same rings, on private memory. It cannot be killed.

use std::sync::Arc;

use super::page::WorkerPage;
use super::run::{Outbox, Station, Work, guarded, run};
use super::slabs::Slabs;
use super::{Body, Common, Ends, Header, Kind, frame};
use crate::dataset::{Record, WorkerInfo};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::ring::{Consumer, Producer};
use crate::sys::doorbell::Doorbell;
use crate::sys::fdpass;
use crate::sys::mapped::Mapped;
use crate::sys::mapping::Mapping;
use crate::transform::{Compiled, Shape};

/// Starts a worker thread. It says [`Kind::Ready`] when its data set is open.
///
/// # Errors
/// When the system has no thread or descriptor left for it.
pub(crate) fn start(common: &Common, number: u32) -> Result<Ends> {
    let mapping = Mapping::private(size_of::<WorkerPage>())?;
    let page: Mapped<WorkerPage> = Mapped::new(Arc::new(mapping), 0)?;
    let bell = Arc::new(Doorbell::new()?);
    let (socket, theirs) = fdpass::pair()?;
    let setup = common.packed.unpack(&common.packed.tables)?;
    let mut station = Station {
        page: page.clone(),
        tasks: Consumer::new(page.project(|page| &page.tasks)),
        bell: Arc::clone(&bell),
        control: common.control.clone(),
        slabs: Slabs::Thread(Arc::clone(&common.table)),
        out: Outbox {
            dones: Producer::new(page.project(|page| &page.dones)),
            host_bell: Arc::clone(&common.host_bell),
            control: common.control.clone(),
            socket: theirs,
        },
        scratch: Vec::new(),
    };
    let info = WorkerInfo::new(number, common.num_workers);
    let thread = std::thread::Builder::new()
        .name(format!("forebay-worker-{number}"))
        .spawn(move || {
            let mut dataset = setup.dataset;
            let ready = guarded(ErrorKind::Dataset, "the data set's start", || dataset.start(&info))
                .and_then(|()| Compiled::new(setup.pipeline, Shape::of(dataset.image_size())));
            let compiled = match ready {
                Ok(compiled) => compiled,
                Err(error) => {
                    let _ = frame::send_text(&station.out.socket, Kind::Refused, &error.to_string());
                    return;
                }
            };
            if frame::send(&station.out.socket, Header::new(Kind::Ready, 0, [0; 3]), &[]).is_ok() {
                let mut work = Work { dataset, compiled, seed: setup.seed, record: Record::default() };
                if let Err(error) = run(&mut station, &mut work) {
                    log::error!("worker {number}: {error}");
                }
            }
        })
        .map_err(|error| {
            Error::io("start a worker thread", error)
                .with_kind(ErrorKind::Limit)
                .with_remedy("ulimit -u 4096 | docker run --pids-limit=4096 | fewer workers")
        })?;
    socket.set_nonblocking(true)?;
    Ok(Ends {
        tasks: Producer::new(page.project(|page| &page.tasks)),
        dones: Consumer::new(page.project(|page| &page.dones)),
        page,
        bell,
        socket,
        body: Body::Thread(thread),
        output: None,
    })
}
