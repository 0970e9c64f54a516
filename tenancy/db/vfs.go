package db

import (
	"errors"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// pinnedVFS names SQLite's way to the files of a [pinnedFolder].
const pinnedVFS = "stoa-pinned"

// registerPinnedVFS gives SQLite that way. It is SQLite's usual one but for one function: names stay as they are. The usual one
// replaces them by what their symbolic links lead to and opens that by its path, so that a program which exchanges a folder
// with a link meanwhile chooses the file. A pinned folder's name is a link of the kernel's, and its file is opened through it. The
// last part of a name is followed in neither.
var registerPinnedVFS = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	usual := sqlite3.Xsqlite3_vfs_find(tls, 0)
	vfsMemory := sqlite3.Xsqlite3_malloc(tls, int32(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	name, err := libc.CString(pinnedVFS)
	if usual == 0 || vfsMemory == 0 || err != nil {
		return errors.New("SQLite has no file system")
	}
	vfs := (*sqlite3.Tsqlite3_vfs)(toPointer(vfsMemory))
	*vfs = *(*sqlite3.Tsqlite3_vfs)(toPointer(usual))
	vfs.FpNext, vfs.FzName = 0, name
	// SQLite's functions are pointers to Go's, as a variable of a function's type holds them.
	fullPathname := copyPathname
	vfs.FxFullPathname = *(*uintptr)(unsafe.Pointer(&fullPathname))
	if code := sqlite3.Xsqlite3_vfs_register(tls, vfsMemory, 0); code != sqlite3.SQLITE_OK {
		return errors.New("SQLite takes no other file system")
	}
	return nil
})

// copyPathname is the xFullPathname of [pinnedVFS]: it copies a path of C to out, which has room for n bytes.
func copyPathname(_ *libc.TLS, _, path uintptr, n int32, out uintptr) int32 {
	name := libc.GoString(path)
	if len(name) >= int(n) {
		return sqlite3.SQLITE_CANTOPEN
	}
	buffer := unsafe.Slice((*byte)(toPointer(out)), n)
	buffer[copy(buffer, name)] = 0
	return sqlite3.SQLITE_OK
}

// toPointer returns an address of C's memory, which Go's collector does not move, as a pointer.
func toPointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
