package task

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// logPageBytes bounds the events of a page of a log, as stored. A larger event is a page of its own.
const logPageBytes = 1 << 20

// ReadLog returns the facts of a task after a sequence, at most limit of them, and whether there may be further ones
// already. It returns [agentsvc.ErrNotFound] for a task that is not visible. It does not wait for facts: [Reader.Follow]
// does.
func (r *Reader) ReadLog(ctx context.Context, visibility Visibility, id agentsvc.TaskID, after int64, limit int) (evs []agentsvc.Event, more bool, err error) {
	if _, err := r.findTask(ctx, visibility, id, store.TaskParts{StateOnly: true}); err != nil {
		return nil, false, err
	}
	if evs, more, err = r.logs.events.LoadPage(ctx, visibility.Memory, id, after, limit, logPageBytes); err != nil {
		return nil, false, err
	}
	var bytes int64
	for _, ev := range evs {
		bytes += ev.ByteSize()
	}
	return evs, more, visibility.Memory.ReserveTotal(ctx, bytes)
}
