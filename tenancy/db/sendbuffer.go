package db

import (
	"errors"

	"github.com/jackc/pgx/v5"
)

// sendBuffer is a buffer that a connection keeps for the bytes of a pipeline. pgx allocates a buffer for each pipeline
// and grows it by quarters, which for a group allocates several times what is sent. As a workaround it is sent as a
// protocol message without content, whose Encode replaces pgx's empty buffer by this one.
type sendBuffer []byte

// sendBufferSize is the capacity of a sendBuffer, in bytes.
const sendBufferSize = 64 << 10

// presizeSendBuffer makes the next pipeline on conn use the connection's own buffer. Nothing may be under way on conn.
func presizeSendBuffer(conn *pgx.Conn) {
	extra := conn.PgConn().CustomData()
	r, ok := extra["send_buffer"].(sendBuffer)
	if !ok {
		r = make(sendBuffer, 0, sendBufferSize)
		extra["send_buffer"] = r
	}
	conn.PgConn().Frontend().Send(r)
}

// Frontend implements pgproto3.FrontendMessage: it marks messages to the server.
func (sendBuffer) Frontend() {}

// Decode is not supported: the server never sends this message.
func (sendBuffer) Decode([]byte) error { return errors.ErrUnsupported }

// Encode moves dst into the larger buffer and adds nothing.
func (r sendBuffer) Encode(dst []byte) ([]byte, error) {
	if cap(dst) >= cap(r) {
		return dst, nil
	}
	return append(r, dst...), nil
}
