package db

import (
	"errors"

	"github.com/jackc/pgx/v5"
)

// room is what a connection keeps ready for the bytes of a group: the driver makes a buffer anew for each pipeline and lets
// it grow by quarters, which for a group comes to several times what is sent. It is sent as a message without a byte.
type room []byte

const roomSize = 64 << 10

// makeRoom has what is sent next on conn, on which nothing is under way, go into the connection's own buffer.
func makeRoom(conn *pgx.Conn) {
	kept := conn.PgConn().CustomData()
	r, ok := kept["room"].(room)
	if !ok {
		r = make(room, 0, roomSize)
		kept["room"] = r
	}
	conn.PgConn().Frontend().Send(r)
}

// Frontend marks a message that goes to the server.
func (room) Frontend() {}

// Decode refuses: nobody receives a room.
func (room) Decode([]byte) error { return errors.ErrUnsupported }

// Encode moves what is there into the room.
func (r room) Encode(dst []byte) ([]byte, error) {
	if cap(dst) >= cap(r) {
		return dst, nil
	}
	return append(r, dst...), nil
}
