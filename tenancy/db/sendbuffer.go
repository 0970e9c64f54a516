package db

import (
	"errors"

	"github.com/jackc/pgx/v5"
)

// sendBuffer is what a connection keeps ready for the bytes of a group: the driver makes a buffer anew for each pipeline and lets
// it grow by quarters, which for a group comes to several times what is sent. It is sent as a message without a byte.
type sendBuffer []byte

const sendBufferSize = 64 << 10

// presizeSendBuffer has what is sent next on conn, on which nothing is under way, go into the connection's own buffer.
func presizeSendBuffer(conn *pgx.Conn) {
	extra := conn.PgConn().CustomData()
	r, ok := extra["room"].(sendBuffer)
	if !ok {
		r = make(sendBuffer, 0, sendBufferSize)
		extra["room"] = r
	}
	conn.PgConn().Frontend().Send(r)
}

// Frontend marks a message that goes to the server.
func (sendBuffer) Frontend() {}

// Decode refuses: nobody receives a room.
func (sendBuffer) Decode([]byte) error { return errors.ErrUnsupported }

// Encode moves what is there into the room.
func (r sendBuffer) Encode(dst []byte) ([]byte, error) {
	if cap(dst) >= cap(r) {
		return dst, nil
	}
	return append(r, dst...), nil
}
