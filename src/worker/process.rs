//! A worker as a process: starting one (the host's half), and being one.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::panic::PanicHookInfo;
use std::sync::Arc;
use std::time::Duration;

use super::entry::VARIABLE;
use super::frame::{self, Header, Kind};
use super::page::{Control, WorkerPage};
use super::run::{Outbox, Station, Work, guarded, run};
use super::setup::{Packed, Setup};
use super::slabs::{Attached, Slabs};
use super::{Body, Common, Ends, Processes};
use crate::dataset::{Record, WorkerInfo};
use crate::error::{Error, ErrorKind, Result};
use crate::slab::SlabLayout;
use crate::sync::ring::{Consumer, Producer};
use crate::sys::doorbell::Doorbell;
use crate::sys::mapped::Mapped;
use crate::sys::mapping::Access;
use crate::sys::output::{self, Output};
use crate::sys::segment::Segment;
use crate::sys::{fdpass, process as os, signals};
use crate::transform::{Compiled, Shape};

/// How long one send of a slot may stand still before the worker looks again.
const SEND_SLICE: Duration = Duration::from_millis(100);

/// Descriptors of every hello; tables follow them.
const FIXED_FDS: usize = 6;

/// The bit of a hello that says that what the worker printed so far is of no interest.
const QUIET_BIT: u32 = 63;

/// Exit codes of a worker that has no work to lose: its host went away, or it refused to start.
const HOST_GONE: i32 = 0;
const REFUSED: i32 = 3;

/// Starts a worker process and sends it everything but the slabs. It says [`Kind::Ready`] when it has understood.
///
/// # Errors
/// When the system has no process, descriptor or memory left for it.
pub(crate) fn start(common: &Common, processes: &Processes, number: u32) -> Result<Ends> {
    let Processes { launch, setup, control, backing } = processes;
    let segment = Segment::create(backing, "worker", size_of::<WorkerPage>(), &mut |_| Ok(()))?;
    let page: Mapped<WorkerPage> = Mapped::new(Arc::new(segment.map(Access::ReadWrite, false)?), 0)?;
    let bell = Doorbell::new()?;
    let (socket, theirs) = fdpass::pair()?;
    let host = std::process::id().to_string();
    let output = Output::new();
    let written = output.as_ref().map(|output| output.as_fd());
    let child = os::spawn(&launch.program, &launch.arguments, &[(VARIABLE, &host)], theirs.as_fd(), written)?;
    drop(theirs);
    let tables = &common.packed.tables;
    let stderr = output::standard_error().map_err(|error| Error::io("find a standard error", error))?;
    let mut fds = vec![
        setup.as_fd(),
        control.as_fd(),
        segment.as_fd(),
        bell.as_fd(),
        common.host_bell.as_fd(),
        stderr.as_fd(),
    ];
    fds.extend(tables.iter().map(|table| table.as_fd()));
    let numbers = u64::from(number) | u64::from(common.num_workers) << 32;
    // What a test program prints on its way to its worker test is of no interest to anybody.
    let quiet = !launch.arguments.is_empty();
    let words =
        [numbers, common.packed.text.len() as u64, tables.len() as u64 | u64::from(quiet) << QUIET_BIT];
    match frame::send(&socket, Header::new(Kind::Hello, 0, words), &fds) {
        // It has died already. That is a death like any other, and its pidfd tells of it.
        Err(error) if error.kind() == ErrorKind::Closed => {}
        sent => sent?,
    }
    socket.set_nonblocking(true)?;
    Ok(Ends {
        tasks: Producer::new(page.project(|page| &page.tasks)),
        dones: Consumer::new(page.project(|page| &page.dones)),
        page,
        bell: Arc::new(bell),
        socket,
        body: Body::Process(child),
        output,
    })
}

/// Is a worker: serves the host at the other end of standard input and returns the exit code.
pub(super) fn serve(host: u32) -> i32 {
    signals::ignore_terminal_signals();
    if os::bind_to_parent(host).is_err() {
        return HOST_GONE;
    }
    os::offer_to_oom_killer();
    os::set_name("forebay-worker");
    std::panic::set_hook(Box::new(quiet_panic));
    let Ok(socket) = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return REFUSED;
    };
    // Programs that a data set starts must not read the host's messages.
    output::detach_stdin();
    let _ = os::close_descriptors_except(&[socket.as_raw_fd()]);
    let (mut station, mut work) = match prepare(&socket) {
        Ok(prepared) => prepared,
        Err(error) if error.kind() == ErrorKind::Closed => return HOST_GONE,
        Err(error) => {
            let _ = frame::send_text(&socket, Kind::Refused, &error.to_string());
            return REFUSED;
        }
    };
    if frame::send(&socket, Header::new(Kind::Ready, 0, [0; 3]), &[]).is_err() {
        return HOST_GONE;
    }
    match run(&mut station, &mut work) {
        Ok(()) => HOST_GONE,
        Err(error) => {
            log::error!("worker: {error}");
            REFUSED
        }
    }
}

/// A panic becomes an error of its sample, with the message; the place is worth a line of its own.
fn quiet_panic(info: &PanicHookInfo<'_>) {
    if let Some(place) = info.location() {
        log::debug!("worker panicked at {place}");
    }
}

/// Receives the hello and builds everything from it.
fn prepare(socket: &UnixStream) -> Result<(Station, Work)> {
    let mut fds = Vec::new();
    let closed = || Error::new(ErrorKind::Closed, "the host is gone");
    let header = frame::receive(socket, &mut fds)?.ok_or_else(closed)?;
    let [numbers, text_bytes, rest] = header.words;
    let (tables, quiet) = (rest as u32 as usize, rest >> QUIET_BIT == 1);
    let wrong = || Error::new(ErrorKind::Config, "the host did not say hello in this build's way");
    if header.kind() != Some(Kind::Hello) || fds.len() != FIXED_FDS + tables {
        return Err(wrong());
    }
    let tables = fds.split_off(FIXED_FDS);
    let [setup, control, page, bell, host_bell, stderr] =
        <[OwnedFd; FIXED_FDS]>::try_from(fds).map_err(|_| wrong())?;

    let mut text = vec![0; text_bytes as usize];
    File::from(setup).read_exact_at(&mut text, 0).map_err(|error| Error::io("read the setup", error))?;
    let packed = Packed { text: String::from_utf8(text).map_err(|_| wrong())?, tables: Vec::new() };
    let tables =
        tables.into_iter().map(|fd| Segment::from_fd_whole(fd).map(Arc::new)).collect::<Result<Vec<_>>>()?;
    let Setup { layout, slabs, seed, pipeline, mut dataset, .. } = packed.unpack(&tables)?;
    let info = WorkerInfo::new(numbers as u32, (numbers >> 32) as u32);
    guarded(ErrorKind::Dataset, "the data set's start", || dataset.start(&info))?;
    let input = Shape::of(dataset.image_size());
    let compiled = Compiled::new(pipeline, input)?;

    let batch = layout.batch;
    let control = Segment::from_fd(control, Control::bytes(slabs, batch)?)?.map(Access::ReadOnly, true)?;
    let control = Control::new(Arc::new(control), slabs, batch)?;
    let page = Segment::from_fd(page, size_of::<WorkerPage>())?.map(Access::ReadWrite, true)?;
    let page: Mapped<WorkerPage> = Mapped::new(Arc::new(page), 0)?;
    let out_socket = socket.try_clone()?;
    out_socket.set_write_timeout(Some(SEND_SLICE))?;
    let station = Station {
        tasks: Consumer::new(page.project(|page| &page.tasks)),
        bell: Arc::new(Doorbell::from_fd(bell)),
        slabs: Slabs::Process {
            layout: Arc::new(layout.clone()),
            attached: vec![Attached::default(); slabs],
            sends: false,
        },
        out: Outbox {
            dones: Producer::new(page.project(|page| &page.dones)),
            host_bell: Arc::new(Doorbell::from_fd(host_bell)),
            control: control.clone(),
            socket: out_socket,
        },
        scratch: vec![0; layout.fields[SlabLayout::IMAGE].slot_bytes],
        page,
        control,
    };
    output::redirect(stderr, !quiet);
    Ok((station, Work { dataset, compiled, seed, record: Record::default() }))
}
