//! Fetch sessions of followers at one partition: who has to hear of what moves here, and whose position is known.
//!
//! An incremental fetch names only what changed, and its session looks only at partitions that moved. To the state
//! machine a follower that has everything fetches again and again all the same: a session notes when it last looked, and
//! the partition passes that on before anything is decided by it ([`PartitionCore::on_repeated_fetch`]).
//!
//! [`PartitionCore::on_repeated_fetch`]: crate::core::PartitionCore::on_repeated_fetch
use std::sync::Arc;

use super::{FollowerAnswer, FollowerPosition, Partition, State};
use crate::sync::lock;

/// A fetch session of a follower. Called under the partition's lock: it may only note something or leave a message.
pub trait FollowerSession: Send + Sync {
    /// The log grew or the leadership changed: a fetch that waits has to look.
    fn appended(&self, place: u32);

    /// Something else moved: the next fetch has to look.
    fn moved(&self, place: u32);

    /// When the follower's last fetch arrived, milliseconds; it looked at all that the session had been told before.
    fn fetched_ms(&self) -> i64;
}

/// A session that has this partition.
pub(super) struct Following {
    session: Arc<dyn FollowerSession>,
    /// The partition's place in the session.
    place: u32,
    replica_id: i32,
    /// The last fetch that looked here was recorded, and nobody has recorded another position of this replica since.
    is_recorded: bool,
}

impl Following {
    fn is(&self, session: &Arc<dyn FollowerSession>, place: u32) -> bool {
        self.place == place && std::ptr::addr_eq(Arc::as_ptr(&self.session), Arc::as_ptr(session))
    }

    pub(super) fn tell_appended(&self) {
        self.session.appended(self.place);
    }

    pub(super) fn tell_moved(&self) {
        self.session.moved(self.place);
    }
}

impl State {
    /// Pass on that followers fetched since their positions were recorded.
    pub(super) fn note_repeated_fetches(&mut self) {
        let Self { core, following, .. } = self;
        for following in following.iter().filter(|following| following.is_recorded) {
            core.on_repeated_fetch(following.replica_id, following.session.fetched_ms());
        }
    }

    /// The next fetch of each session has to be checked and recorded, although nothing was appended.
    /// [`Self::note_repeated_fetches`] comes first, before what changes.
    pub(super) fn review_followers(&mut self) {
        for following in &mut self.following {
            following.is_recorded = false;
            following.tell_moved();
        }
    }

    /// As [`Self::note_repeated_fetches`], of one replica, whose position is about to be recorded anew. Sessions that
    /// recorded another one have to look again with their next fetch.
    fn forget_position(&mut self, replica_id: i32, recorder: Option<(&Arc<dyn FollowerSession>, u32)>) {
        let Self { core, following, .. } = self;
        for following in following.iter_mut().filter(|following| following.replica_id == replica_id) {
            if std::mem::replace(&mut following.is_recorded, false) {
                core.on_repeated_fetch(replica_id, following.session.fetched_ms());
                if !recorder.is_some_and(|(session, place)| following.is(session, place)) {
                    following.tell_moved();
                }
            }
        }
    }
}

impl Partition {
    /// Tell a session of what moves from now on.
    pub fn follow(&self, session: &Arc<dyn FollowerSession>, place: u32, replica_id: i32) {
        let session = Arc::clone(session);
        lock(&self.state).following.push(Following { session, place, replica_id, is_recorded: false });
    }

    /// A session has this partition no longer.
    pub fn unfollow(&self, session: &Arc<dyn FollowerSession>, place: u32) {
        let mut state = lock(&self.state);
        if let Some(position) = state.following.iter().position(|following| following.is(session, place)) {
            let following = state.following.swap_remove(position);
            if following.is_recorded {
                state.core.on_repeated_fetch(following.replica_id, following.session.fetched_ms());
            }
        }
    }

    /// As [`Self::follower_fetch`]; `session` knows the partition at `place` and may leave out later fetches from the same
    /// position as long as nothing moves there.
    pub fn follower_fetch_in(
        &self,
        position: &FollowerPosition,
        session: &Arc<dyn FollowerSession>,
        place: u32,
    ) -> FollowerAnswer {
        let mut state = lock(&self.state);
        state.forget_position(position.fetch.replica_id, Some((session, place)));
        let (answer, is_recorded) = self.answer_follower(&mut state, position, true);
        if is_recorded {
            let own = state.following.iter_mut().find(|following| following.is(session, place));
            if let Some(own) = own {
                own.is_recorded = true;
            }
        }
        answer
    }

    /// Check and record a follower's fetch (Kafka's `Partition.fetchRecords` and `updateFollowerFetchState`).
    ///
    /// Once per request: a later look of the same request records nothing (ISR-16), see [`Self::look_for_follower`].
    pub fn follower_fetch(&self, position: &FollowerPosition) -> FollowerAnswer {
        let mut state = lock(&self.state);
        state.forget_position(position.fetch.replica_id, None);
        self.answer_follower(&mut state, position, true).0
    }

    /// What a follower's fetch that waits would be answered now.
    pub fn look_for_follower(&self, position: &FollowerPosition) -> FollowerAnswer {
        self.answer_follower(&mut lock(&self.state), position, false).0
    }

    /// The replicas that a reassignment adds; bytes that they are sent count apart.
    pub fn set_adding(&self, replica_ids: Vec<i32>) {
        lock(&self.state).adding = replica_ids;
    }
}
