//! Fetch: find or open the session, read what may have news, and answer at once or when there is enough.
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::follower::FollowerCall;
use super::grants::{Grants, TopicId};
use super::read::{is_served, FetchLimits, PartitionRead};
use super::shared::ServiceShared;
use super::{DataService, Pending};
use crate::error_code;
use crate::exchange::{Answered, Outcome, Output, Peer, RequestId};
use crate::partition::{Partition, PartitionKey};
use crate::partitions::Partitions;
use crate::session::{FetchSession, FetchSet, FollowingBroker, PollWait, SessionCache, SessionOwner};
use crate::wire::fetch::{self, FetchPartition, FetchRequest, FetchVisitor};
use crate::wire::{NotPlain, Parsed, Topic};

/// `session_epoch` of a request that opens a session.
const INITIAL_EPOCH: i32 = 0;
/// `session_epoch` of a request that wants none, and closes the one it names.
const FINAL_EPOCH: i32 = -1;
/// Records of so many partitions are found for a follower in one turn of the thread, which takes some 15 ms; a follower may
/// have eight times as many, all behind. The others are first in its next answer.
pub(super) const FOLLOWED_PER_TURN: usize = if cfg!(test) { 64 } else { 2048 };

/// A partition of a request.
#[derive(Debug)]
pub(super) struct AskedPartition {
    /// `None` if there is no such partition on this node.
    partition: Option<Arc<Partition>>,
    wanted: FetchPartition,
}

impl AskedPartition {
    fn served(&self, to_follower: bool) -> Option<&Arc<Partition>> {
        self.partition.as_ref().filter(|partition| match to_follower {
            true => partition.serves_followers(),
            false => is_served(partition, &self.wanted),
        })
    }
}

/// Vectors that requests use one after the other.
#[derive(Debug, Default)]
pub(super) struct FetchScratch {
    asked: Vec<AskedPartition>,
    forgotten: Vec<PartitionKey>,
    /// Places in a session.
    places: Vec<u32>,
}

struct Collector<'s> {
    partitions: &'s Partitions,
    scratch: &'s mut FetchScratch,
}

impl Collector<'_> {
    fn find(&self, topic: Topic<'_>, index: i32) -> Option<Arc<Partition>> {
        match topic {
            Topic::Name(name) => self.partitions.get_by_name(name, index),
            Topic::Id(topic_id) => self.partitions.get(&PartitionKey { topic_id: *topic_id, index }),
        }
    }
}

impl<'a> FetchVisitor<'a> for Collector<'_> {
    fn begin(&mut self, request: &FetchRequest) -> Parsed<()> {
        let is_full = matches!(request.session_epoch, INITIAL_EPOCH | FINAL_EPOCH);
        let is_own = SessionCache::owns(request.session_id) || (is_full && request.session_id == 0);
        if request.replica_id < -1 || !is_own {
            return Err(NotPlain::Refused);
        }
        Ok(())
    }

    fn partition(&mut self, topic: Topic<'a>, wanted: &FetchPartition) -> Parsed<()> {
        let partition = self.find(topic, wanted.index);
        self.scratch.asked.push(AskedPartition { partition, wanted: *wanted });
        Ok(())
    }

    fn forgotten(&mut self, topic: Topic<'a>, index: i32) -> Parsed<()> {
        let key = match topic {
            Topic::Id(topic_id) => Some(PartitionKey { topic_id: *topic_id, index }),
            Topic::Name(_) => self.find(topic, index).map(|partition| *partition.key()),
        };
        self.scratch.forgotten.extend(key);
        Ok(())
    }
}

/// What a request needs until it is answered.
#[derive(Debug)]
pub(super) struct FetchCall {
    request: RequestId,
    listener: u16,
    correlation_id: i32,
    version: i16,
    limits: FetchLimits,
    session: Arc<FetchSession>,
    /// 0 for a fetch that goes without a session; `session` is its alone then.
    session_id: i32,
    /// Only changes are answered.
    is_incremental: bool,
    /// Of the session while this request is its last.
    request_count: u64,
    /// `None` for a consumer.
    follower: Option<FollowerCall>,
    reads: Vec<PartitionRead>,
    size_bytes: i64,
    /// How often records were found in this turn.
    found_count: usize,
    /// Whether a partition has an error or diverges: the answer is then sent without waiting.
    has_error: bool,
}

/// The session has a partition that Python has to answer for.
struct SessionEnded;

impl DataService {
    pub(super) fn fetch(&mut self, request: RequestId, peer: &Peer, frame: &[u8], now: Instant) -> Outcome {
        let mut scratch = std::mem::take(&mut self.fetch_scratch);
        let mut collector = Collector { partitions: self.shared.partitions(), scratch: &mut scratch };
        let selects_replicas = self.settings.get(&self.shared).selects_replicas;
        let outcome = match fetch::parse(frame, &mut collector) {
            Err(_) => Outcome::HandOver,
            Ok((_, fetch)) if fetch.replica_id < -1 => Outcome::HandOver,
            Ok((_, fetch)) if fetch.replica_id < 0 && self.shared.hands_over_clients() => {
                // Python does not know it: the client begins anew there.
                self.shared.sessions().close(fetch.session_id, peer);
                Outcome::HandOver
            }
            // Python knows the racks of the followers.
            Ok((_, fetch)) if fetch.replica_id < 0 && fetch.has_rack && selects_replicas => Outcome::HandOver,
            Ok((header, fetch)) => {
                let settings = self.settings.get(&self.shared);
                let follower = (fetch.replica_id >= 0).then(|| FollowerCall {
                    broker: FollowingBroker {
                        replica_id: fetch.replica_id,
                        broker_epoch: fetch.replica_epoch,
                    },
                    now_ms: self.shared.now_ms(),
                    version: header.api_version,
                    is_arrival: true,
                });
                let call = FetchCall {
                    request,
                    listener: peer.listener,
                    correlation_id: header.correlation_id,
                    version: header.api_version,
                    limits: FetchLimits::new(&fetch, settings.fetch_max_bytes),
                    session: Arc::clone(&self.no_session),
                    session_id: 0,
                    is_incremental: false,
                    request_count: 0,
                    follower,
                    reads: Vec::new(),
                    size_bytes: 0,
                    found_count: 0,
                    has_error: false,
                };
                match fetch.session_epoch {
                    INITIAL_EPOCH | FINAL_EPOCH => self.full_fetch(call, peer, &fetch, &mut scratch, now),
                    _ => self.incremental_fetch(call, peer, &fetch, &mut scratch, now),
                }
            }
        };
        scratch.asked.clear();
        scratch.forgotten.clear();
        self.fetch_scratch = scratch;
        outcome
    }

    /// A request that names all its partitions.
    fn full_fetch(
        &mut self,
        mut call: FetchCall,
        peer: &Peer,
        fetch: &FetchRequest,
        scratch: &mut FetchScratch,
        now: Instant,
    ) -> Outcome {
        let wants_session = fetch.session_epoch == INITIAL_EPOCH && !scratch.asked.is_empty();
        // The request ends it, also if Python answers.
        if fetch.session_id != 0 {
            self.shared.sessions().close(fetch.session_id, peer);
        }
        let mut session = FetchSession::new(call.broker());
        if let Some(grants) = self.shared.grants() {
            let Some(generation) = allowed_in(grants, peer, call.broker(), &scratch.asked) else {
                return Outcome::HandOver;
            };
            if wants_session {
                session.set_owner(SessionOwner::new(peer, generation));
            }
        }
        call.session = Arc::new(session);
        let mut set = call.session.lock();
        for asked in &scratch.asked {
            let Some(partition) = asked.served(call.follower.is_some()) else { return Outcome::HandOver };
            if !wants_session {
                call.session.push(&mut set, partition, asked.wanted);
            } else if !call.session.upsert(&mut set, partition, asked.wanted) {
                return Outcome::HandOver; // the same partition twice
            }
        }
        drop(set);
        let sessions = self.shared.sessions();
        if wants_session {
            let limits = self.settings.get(&self.shared).sessions;
            let has_topic_ids = fetch::has_topic_ids(call.version);
            let id = sessions.register(&call.session, has_topic_ids, limits, self.shared.now_ms());
            call.session_id = id.unwrap_or(0);
        }
        let session = Arc::clone(&call.session);
        let mut set = session.lock();
        if call.session_id != 0 {
            session.subscribe(&mut set);
        }
        set.begin_request(fetch.isolation_level);
        self.read_and_answer(call, set, scratch, now)
    }

    /// A request that names what changed in its session.
    fn incremental_fetch(
        &mut self,
        mut call: FetchCall,
        peer: &Peer,
        fetch: &FetchRequest,
        scratch: &mut FetchScratch,
        now: Instant,
    ) -> Outcome {
        let sessions = self.shared.sessions();
        let has_topic_ids = fetch::has_topic_ids(call.version);
        let (id, epoch) = (fetch.session_id, fetch.session_epoch);
        let session = match sessions.find(id, epoch, has_topic_ids, peer, self.shared.now_ms()) {
            Ok(session) => session,
            Err(code) => return Outcome::Answer(error_answer(call.correlation_id, code)),
        };
        (call.session, call.session_id, call.is_incremental) = (Arc::clone(&session), id, true);
        if session.follower() != call.broker() {
            return self.end_session(&call); // another broker, or another life of it
        }
        if !self.is_still_allowed(&session, peer, &scratch.asked) {
            return self.end_session(&call); // Python judges the client's next, full fetch
        }
        let mut set = session.lock();
        // A request of the session that still waits is answered with what it has.
        session.bell().wake();
        for asked in &scratch.asked {
            let to_follower = call.follower.is_some();
            let Some(partition) = asked.served(to_follower) else { return self.end_session(&call) };
            session.upsert(&mut set, partition, asked.wanted);
        }
        for key in &scratch.forgotten {
            session.remove(&mut set, key);
        }
        if set.is_empty() {
            sessions.remove(id);
            return Outcome::Answer(error_answer(call.correlation_id, error_code::NONE));
        }
        set.begin_request(fetch.isolation_level);
        session.bell().take(&mut scratch.places);
        scratch.places.iter().for_each(|&place| set.mark(place));
        self.read_and_answer(call, set, scratch, now)
    }

    /// Whether the client may read each partition of its session, and those that the request adds.
    ///
    /// Its partitions are allowed as long as the ACLs are those by which it was opened.
    fn is_still_allowed(&self, session: &FetchSession, peer: &Peer, asked: &[AskedPartition]) -> bool {
        let Some(grants) = self.shared.grants() else { return true };
        let generation = match session.follower() {
            None if asked.is_empty() => Some(grants.generation()),
            follower => allowed_in(grants, peer, follower, asked),
        };
        // What a replica may do follows from one ACL, which was looked up just now.
        generation.is_some() && (session.follower().is_some() || session.generation() == generation)
    }

    fn end_session(&self, call: &FetchCall) -> Outcome {
        self.shared.sessions().remove(call.session_id);
        Outcome::Answer(error_answer(call.correlation_id, error_code::FETCH_SESSION_ID_NOT_FOUND))
    }

    fn read_and_answer(
        &mut self,
        mut call: FetchCall,
        mut set: MutexGuard<'_, FetchSet>,
        scratch: &mut FetchScratch,
        now: Instant,
    ) -> Outcome {
        call.request_count = set.request_count;
        let poll = call.begin_poll(&self.shared, &scratch.asked, now);
        loop {
            set.candidates(&mut scratch.places);
            if call.read_all(&mut set, &scratch.places).is_err() {
                return self.end_session(&call);
            }
            if let Some(follower) = call.follower.as_mut().filter(|follower| follower.is_arrival) {
                follower.is_arrival = false;
                call.session.bell().set_fetched_ms(follower.now_ms);
            }
            if call.limits.max_wait_ms <= 0 || set.is_empty() || call.is_enough() {
                return Outcome::Answer(call.answer(&self.shared, &mut set));
            }
            if set.is_subscribed() {
                break;
            }
            // What moves before is seen by the second look, what moves later is told.
            call.session.subscribe(&mut set);
        }
        let session = Arc::clone(&call.session);
        let polls = self.shared.partitions().follower_polls();
        if poll.is_some_and(|(broker_id, wait)| !polls.hold(broker_id, &session, wait)) {
            return Outcome::Answer(call.answer(&self.shared, &mut set));
        }
        let wait = Duration::from_millis(u64::try_from(call.limits.max_wait_ms).unwrap_or(0));
        let id = self.pending.insert(Pending::Fetch(call), now.checked_add(wait));
        if !session.bell().wait(&self.listener, id) {
            self.looks.push(id);
        }
        // Only now: the session's next request, on another thread, would not find this one waiting, and this one would
        // then take that one's place at the bell.
        drop(set);
        Outcome::Pending
    }

    /// Something moved for a fetch that waits, or its time is over.
    pub(super) fn look_again(&mut self, id: u64, is_time_over: bool, answered: &mut Vec<Answered>) {
        let Some(Pending::Fetch(call)) = self.pending.get_mut(id) else { return };
        let session = Arc::clone(&call.session);
        let mut set = session.lock();
        let is_last = set.request_count == call.request_count;
        let outcome = if is_last && call.read_moved(&mut set, &mut self.fetch_scratch.places).is_err() {
            self.shared.sessions().remove(call.session_id);
            Outcome::Answer(error_answer(call.correlation_id, error_code::FETCH_SESSION_ID_NOT_FOUND))
        } else if is_time_over || !is_last || call.is_enough() {
            Outcome::Answer(call.answer(&self.shared, &mut set))
        } else {
            if !session.bell().wait(&self.listener, id) {
                // It moves all the time: the next turn looks, so that this one ends.
                self.listener.moved(id);
            }
            return;
        };
        answered.push(Answered { request: call.request, outcome });
        drop(set);
        self.pending.remove(id);
    }
}

impl FetchCall {
    pub(super) fn request(&self) -> RequestId {
        self.request
    }

    /// A follower that has more to fetch than it names waits for a short time only.
    fn begin_poll(
        &mut self,
        shared: &ServiceShared,
        asked: &[AskedPartition],
        now: Instant,
    ) -> Option<(i32, PollWait)> {
        let broker_id = self.broker()?.replica_id;
        let named =
            asked.iter().filter_map(|asked| asked.partition.as_ref()).map(|partition| *partition.key());
        let polls = shared.partitions().follower_polls();
        let wait = polls.arrived(broker_id, named, self.limits.max_wait_ms, now);
        self.limits.max_wait_ms = wait.max_wait_ms;
        Some((broker_id, wait))
    }

    fn is_enough(&self) -> bool {
        self.has_error || self.is_turn_full() || self.size_bytes >= self.limits.min_bytes
    }

    fn is_turn_full(&self) -> bool {
        self.follower.is_some() && self.found_count >= FOLLOWED_PER_TURN
    }

    /// Read partitions in order until the byte limit is used up. The first batch found is returned even if it alone is
    /// larger than the limits, so that a client never gets stuck.
    fn read_all(&mut self, set: &mut FetchSet, places: &[u32]) -> Result<(), SessionEnded> {
        self.reads.clear();
        if !places.iter().all(|&place| self.may_read(set, place)) {
            return Err(SessionEnded); // before anything is recorded
        }
        self.reads.reserve(places.len());
        (self.size_bytes, self.found_count, self.has_error) = (0, 0, false);
        places.iter().try_for_each(|&place| self.read(set, place))
    }

    /// Whether Python does not have to answer the follower for this partition.
    fn may_read(&self, set: &FetchSet, place: u32) -> bool {
        let is_bound = self.follower.is_some() && self.session_id != 0;
        !is_bound || set.entry(place).is_none_or(|entry| entry.partition.serves_followers())
    }

    fn broker(&self) -> Option<FollowingBroker> {
        self.follower.map(|follower| follower.broker)
    }

    /// Read again what moved since the last look.
    fn read_moved(&mut self, set: &mut FetchSet, places: &mut Vec<u32>) -> Result<(), SessionEnded> {
        self.session.bell().take(places);
        self.found_count = 0;
        places.iter().try_for_each(|&place| {
            set.mark(place);
            self.read(set, place)
        })
    }

    /// Read one partition, for the first time or again.
    fn read(&mut self, set: &mut FetchSet, place: u32) -> Result<(), SessionEnded> {
        if !self.may_read(set, place) {
            return Err(SessionEnded);
        }
        let Some(entry) = set.entry_mut(place) else { return Ok(()) };
        let before = self.reads.get(entry.read_at).filter(|read| read.place == place);
        let others_bytes = self.size_bytes - before.map_or(0, |read| read.size_bytes);
        let is_new = before.is_none();
        let is_turn_full = self.is_turn_full();
        let remaining_bytes = if is_turn_full { 0 } else { (self.limits.max_bytes - others_bytes).max(0) };
        let is_first = others_bytes == 0 && !is_turn_full;
        let limits = &self.limits;
        let (partition, wanted, number) = (&entry.partition, &entry.wanted, entry.number);
        let read = match &self.follower {
            None => PartitionRead::of(place, partition, wanted, limits, remaining_bytes, is_first),
            Some(follower) => {
                let session = (self.session_id != 0).then(|| self.session.as_follower());
                Ok(follower.read(partition, wanted, place, session, remaining_bytes, is_first))
            }
        };
        let mut read = match read {
            Ok(read) => read,
            Err(_) => {
                let refusal = partition.check_leader_epoch(entry.wanted.current_leader_epoch, true);
                let is_moved = partition.is_readable() && refusal != error_code::NONE;
                if self.session_id != 0 && !is_moved {
                    return Err(SessionEnded);
                }
                let is_gone = refusal == error_code::NONE;
                let code = if is_gone { error_code::NOT_LEADER_OR_FOLLOWER } else { refusal };
                let mut read = PartitionRead::failed(place, code);
                if is_moved && self.version >= fetch::NAMES_LEADERS_FROM {
                    let (leader_epoch, leader_id) = partition.role();
                    read.current_leader = Some((leader_id, leader_epoch));
                }
                read
            }
        };
        read.number = number;
        self.size_bytes = others_bytes + read.size_bytes;
        self.found_count += usize::from(read.size_bytes > 0);
        self.has_error |= read.error_code != error_code::NONE || read.diverging_epoch.is_some();
        if is_new {
            entry.read_at = self.reads.len();
            self.reads.push(read);
        } else if let Some(before) = self.reads.get_mut(entry.read_at) {
            *before = read;
        }
        Ok(())
    }

    /// Encode what was read, and remember what the client is told.
    fn answer(&mut self, shared: &ServiceShared, set: &mut FetchSet) -> Vec<Output> {
        let mut reads = std::mem::take(&mut self.reads);
        // A later request of the session may have taken a partition out, and put another one in its place.
        reads.retain(|read| set.entry(read.place).is_some_and(|entry| entry.number == read.number));
        reads.sort_by_key(|read| set.entry(read.place).map(|entry| entry.order));
        if self.session_id != 0 {
            if set.request_count == self.request_count {
                set.settle();
            }
            reads.retain(|read| remember(set, read) || !self.is_incremental);
        }
        let topic_of =
            |read: &PartitionRead| set.entry(read.place).map(|entry| entry.partition.key().topic_id);
        let is_same_topic = |left: &PartitionRead, right: &PartitionRead| topic_of(left) == topic_of(right);
        let topic_count = reads.chunk_by(is_same_topic).count();
        let mut writer =
            fetch::begin_response(self.correlation_id, error_code::NONE, self.session_id, topic_count);
        for topic in reads.chunk_by_mut(is_same_topic) {
            let Some(first) = topic.first().and_then(|read| set.entry(read.place)) else { continue };
            let name = if fetch::has_topic_ids(self.version) {
                Topic::Id(&first.partition.key().topic_id)
            } else {
                Topic::Name(first.partition.topic())
            };
            fetch::begin_topic(&mut writer, name, topic.len());
            for read in topic {
                let Some(entry) = set.entry(read.place) else { continue };
                fetch::write_partition(&mut writer, read.data(entry.partition.key().index));
            }
            fetch::end_topic(&mut writer);
        }
        if self.follower.is_some() {
            count_replicated(shared, set, &reads);
            fetch::end_response(&mut writer, &[]);
            return writer.finish();
        }
        let leaders = reads.iter().filter_map(|read| read.current_leader.map(|(leader_id, _)| leader_id));
        fetch::end_response(&mut writer, &shared.addresses(self.listener, leaders.collect()));
        writer.finish()
    }
}

/// The generation of the ACLs by which the sender of a fetch may read all that it names, if it may.
fn allowed_in(
    grants: &Grants,
    peer: &Peer,
    follower: Option<FollowingBroker>,
    asked: &[AskedPartition],
) -> Option<u64> {
    if follower.is_some() {
        return grants.may_replicate(peer.into());
    }
    let mut last: Option<&TopicId> = None;
    let topic_ids = asked
        .iter()
        .filter_map(|asked| asked.partition.as_ref()) // Python answers for the others
        .map(|partition| &partition.key().topic_id)
        .filter(|topic_id| last.replace(*topic_id) != Some(*topic_id));
    grants.may_read(peer.into(), topic_ids)
}

/// Count what a follower is sent.
fn count_replicated(shared: &ServiceShared, set: &FetchSet, reads: &[PartitionRead]) {
    let bytes_of = |read: &PartitionRead| u64::try_from(read.size_bytes).unwrap_or(0);
    let bytes: u64 = reads.iter().map(bytes_of).sum();
    let Some(entry) = reads.first().and_then(|read| set.entry(read.place)).filter(|_| bytes > 0) else {
        return;
    };
    let reassigned = reads.iter().filter(|read| read.is_adding).map(bytes_of).sum();
    if shared.partitions().replicated_out(bytes, reassigned) {
        entry.partition.tell_replicated();
    }
}

/// Note the values that the answer has for a partition; true if it has to name the partition. A follower whose log
/// diverges truncates it and ignores the other values, so that they are not noted.
fn remember(set: &mut FetchSet, read: &PartitionRead) -> bool {
    let Some(entry) = set.entry_mut(read.place) else { return false };
    let has_records = read.size_bytes > 0;
    let is_news = has_records
        || read.error_code != error_code::NONE
        || read.diverging_epoch.is_some()
        || read.high_watermark != entry.told_high_watermark
        || read.log_start_offset != entry.told_log_start_offset;
    let is_taken = read.error_code == error_code::NONE && read.diverging_epoch.is_none();
    (entry.told_high_watermark, entry.told_log_start_offset) =
        if is_taken { (read.high_watermark, read.log_start_offset) } else { (-1, -1) };
    if has_records {
        set.move_to_end(read.place);
    }
    if read.is_behind {
        set.mark(read.place);
    }
    is_news
}

/// An answer without partitions.
fn error_answer(correlation_id: i32, error_code: i16) -> Vec<Output> {
    let mut writer = fetch::begin_response(correlation_id, error_code, 0, 0);
    fetch::end_response(&mut writer, &[]);
    writer.finish()
}
