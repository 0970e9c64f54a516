package db

import (
	"errors"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// pinnedVFS is the name of the SQLite VFS (the layer that opens files) for files in a [pinnedFolder].
const pinnedVFS = "stoa-pinned"

// registerPinnedVFS registers pinnedVFS. It is a copy of SQLite's default VFS except for xFullPathname, which leaves
// names as they are. The default one resolves symbolic links and then opens the resulting path, so that a program which
// replaces a folder by a link in between could choose the file. The path of a pinned folder is itself a link
// (/proc/self/fd/N), through which the file must be opened. Neither VFS follows a link in the last element of a path.
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
	// In the translated SQLite a C function pointer is the content of a Go variable of function type.
	fullPathname := copyPathname
	vfs.FxFullPathname = *(*uintptr)(unsafe.Pointer(&fullPathname))
	if code := sqlite3.Xsqlite3_vfs_register(tls, vfsMemory, 0); code != sqlite3.SQLITE_OK {
		return errors.New("SQLite refused to register a file system")
	}
	return nil
})

// copyPathname is the xFullPathname of pinnedVFS: it copies the C string path to out, which has n bytes.
func copyPathname(_ *libc.TLS, _, path uintptr, n int32, out uintptr) int32 {
	name := libc.GoString(path)
	if len(name) >= int(n) {
		return sqlite3.SQLITE_CANTOPEN
	}
	buffer := unsafe.Slice((*byte)(toPointer(out)), n)
	buffer[copy(buffer, name)] = 0
	return sqlite3.SQLITE_OK
}

// toPointer returns an address in C memory as a pointer. Go's collector does not move or free that memory, so the
// conversion is safe although vet's rules for unsafe.Pointer cannot see it.
func toPointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
