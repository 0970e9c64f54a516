// Package directory is the source of documents in a folder. [Source.List] walks the folder through an [os.Root], so that
// no link leads out of it, in the byte order of the paths. [Source.Wait] watches its folders.
//
// The id of a document is its path below the folder, with slashes. Left out are: what the patterns do not fit, names
// that begin with a dot unless a pattern writes the dot, ".git" and what is in it, links to folders, and what is no
// regular file (pipes, devices, sockets). Listed, but failing when they are opened, are: files that are too large, files
// that this server may not read, links that lead out of the folder, and names that are no UTF-8 or cannot be printed.
package directory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
)

// Bounds of a listing.
const (
	// defaultMaxFileSize is in bytes.
	defaultMaxFileSize = 10 << 20
	maxDepth           = 100
	// maxEntries bounds the entries of all folders that are looked at, also of files that no pattern fits.
	maxEntries = 1_000_000
	// maxFolderEntries bounds one folder, whose entries are sorted in memory.
	maxFolderEntries = 200_000
)

// Options configure a [Source].
type Options struct {
	// Config are the settings of a source with type directory.
	Config *config.Source
	// OpenRoot opens the folder, for each listing and each file. For a folder of a tenant it is [grant.RootedPath.OpenFolder],
	// which refuses links out of the granted root. nil: the operator's folder Config.Path.
	OpenRoot func() (*os.Root, error)
	// IsOwnFile reports whether a file is one of the server's own, which is never a document; nil: none is.
	IsOwnFile func(fs.FileInfo) bool
	// Watch says whether Wait watches the folder.
	Watch bool
	// Reads reports whether a file with this name can be read; it decides where Config.Include is empty. nil: all can.
	Reads func(name string) bool
}

// Source is a folder. List and Wait may run at the same time.
type Source struct {
	path        string // absolute, for the watcher; files are opened by openRoot only
	openRoot    func() (*os.Root, error)
	isOwnFile   func(fs.FileInfo) bool
	patterns    patterns
	maxFileSize int64
	watcher     *watcher // nil without Options.Watch
}

var _ source.Source = (*Source)(nil)

// New returns the source for a folder. It does not look at the folder.
func New(opts Options) (*Source, error) {
	abs, err := filepath.Abs(opts.Config.Path)
	if err != nil {
		return nil, source.PermanentErrorf("the folder %s has no absolute path", opts.Config.Path)
	}
	s := &Source{path: abs, openRoot: opts.OpenRoot, isOwnFile: opts.IsOwnFile, maxFileSize: int64(opts.Config.MaxFileSize), patterns: newPatterns(opts.Config, opts.Reads)}
	if s.openRoot == nil {
		s.openRoot = func() (*os.Root, error) { return os.OpenRoot(abs) }
	}
	if s.isOwnFile == nil {
		s.isOwnFile = func(fs.FileInfo) bool { return false }
	}
	if s.maxFileSize <= 0 {
		s.maxFileSize = defaultMaxFileSize
	}
	if opts.Watch {
		s.watcher = newWatcher()
	}
	return s, nil
}

// Close ends the watching.
func (s *Source) Close() error {
	if s.watcher == nil {
		return nil
	}
	return s.watcher.close()
}

// Wait implements [source.Source]. It returns nil at once if something changed since the latest listing began.
func (s *Source) Wait(ctx context.Context) error {
	if s.watcher == nil {
		return errors.ErrUnsupported
	}
	return s.watcher.wait(ctx)
}

// List implements [source.Source].
func (s *Source) List(ctx context.Context) iter.Seq2[source.Item, error] {
	return func(yield func(source.Item, error) bool) {
		root, err := s.openRoot()
		if err != nil {
			yield(source.Item{}, describeRootError(err))
			return
		}
		defer func() { _ = root.Close() }()
		if s.watcher != nil {
			s.watcher.begin()
			defer s.watcher.end()
		}
		w := &walk{source: s, root: root, yield: yield}
		if err := w.visitFolder(ctx, ".", 0); err != nil && !errors.Is(err, errStopped) {
			yield(source.Item{}, err)
		}
	}
}

// errStopped reports that the caller of List wants no more documents.
var errStopped = errors.New("stopped")

// walk is one listing.
type walk struct {
	source  *Source
	root    *os.Root
	yield   func(source.Item, error) bool
	entries int
	listed  int
}

// visitFolder lists the folder with the given path, and the folders in it.
func (w *walk) visitFolder(ctx context.Context, folder string, depth int) error {
	if depth > maxDepth {
		return source.PermanentErrorf("the folder %s lies more than %d folders deep; leave it out by exclude", folder, maxDepth)
	}
	if w.source.watcher != nil {
		w.source.watcher.addFolder(filepath.Join(w.source.path, filepath.FromSlash(folder)))
	}
	entries, err := w.readFolder(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return source.Errorf("the listing of the folder was cancelled")
		}
		name := path.Join(folder, e.name)
		if !w.source.patterns.mayVisit(name, e.folder) {
			continue
		}
		switch {
		case !utf8.ValidString(e.name):
			err = w.add(source.NewFailedItem(name, source.PermanentErrorf("the name of this file or folder is no UTF-8; rename it")))
		case !source.IsPrintable(e.name):
			err = w.add(source.NewFailedItem(name, source.PermanentErrorf("the name of this file or folder has a control character, a line break or a mark of the direction of writing; rename it")))
		case e.folder:
			err = w.visitFolder(ctx, name, depth+1)
		default:
			err = w.visitFile(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// entry is what a folder holds.
type entry struct {
	name   string
	folder bool
}

// sortKey orders entries so that the paths of the whole walk are in byte order: all paths in the folder "a" begin with
// "a/", which sorts after "a-b" and "a.txt".
func (e entry) sortKey() string {
	if e.folder {
		return e.name + "/"
	}
	return e.name
}

// readFolder returns the entries of a folder in the order of the walk. A folder that cannot be read to its end is an
// error: its documents would look deleted.
func (w *walk) readFolder(folder string) ([]entry, error) {
	f, err := w.root.Open(filepath.FromSlash(folder))
	if err != nil {
		return nil, describeFolderError(folder, err)
	}
	defer func() { _ = f.Close() }()
	var out []entry
	for {
		const batch = 1000
		list, err := f.ReadDir(batch)
		for _, e := range list {
			out = append(out, entry{name: e.Name(), folder: e.IsDir()})
		}
		if w.entries += len(list); w.entries > maxEntries || len(out) > maxFolderEntries {
			return nil, source.PermanentErrorf("the folder holds too many files: at most %d in one folder and %d in all are looked at; narrow path or exclude folders", maxFolderEntries, maxEntries)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, describeFolderError(folder, err)
		}
	}
	// A folder that was removed while it was open reads as empty.
	if info, err := f.Stat(); err != nil || info.Sys().(*syscall.Stat_t).Nlink == 0 {
		return nil, describeFolderError(folder, fs.ErrNotExist)
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.sortKey(), b.sortKey()) })
	return out, nil
}

// visitFile lists a file. A file that disappears meanwhile is left out, like one that never was there.
func (w *walk) visitFile(name string) error {
	info, err := w.root.Lstat(filepath.FromSlash(name))
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if info, err = w.root.Stat(filepath.FromSlash(name)); err == nil && info.IsDir() {
			return nil
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return w.add(w.newFailedItem(name, describeFileError(err)))
	case !info.Mode().IsRegular(), w.source.isOwnFile(info):
		return nil
	}
	return w.add(w.newItem(name, info))
}

// newItem returns the document of a file.
func (w *walk) newItem(name string, info fs.FileInfo) source.Item {
	s := w.source
	if len(name) > source.MaxIDBytes {
		return w.newFailedItem(name, source.PermanentErrorf("the path is longer than %d bytes; shorten it", source.MaxIDBytes))
	}
	if info.Size() > s.maxFileSize {
		item := w.newFailedItem(name, errTooLarge(info.Size(), s.maxFileSize))
		item.Bytes = info.Size()
		return item
	}
	access := s.patterns.access(name)
	stat := info.Sys().(*syscall.Stat_t)
	return source.Item{
		ID: name, Bytes: info.Size(), MediaType: mediaTypes[strings.ToLower(path.Ext(name))], Access: access,
		Version: source.Version(fmt.Sprint(info.Size()), fmt.Sprint(info.ModTime().UnixNano()), fmt.Sprint(stat.Ino), source.AccessVersion(access)),
		Open:    func(context.Context) (io.ReadCloser, error) { return s.openFile(name) },
	}
}

// newFailedItem returns the document of a file that cannot be read. It keeps its access: what fails has a name, too.
func (w *walk) newFailedItem(name string, err *source.Error) source.Item {
	item := source.NewFailedItem(name, err)
	item.Access = w.source.patterns.access(name)
	return item
}

// add yields a document.
func (w *walk) add(item source.Item) error {
	if w.listed++; w.listed > source.MaxDocuments {
		return source.PermanentErrorf("the folder holds more than %d documents; narrow path, include or exclude", source.MaxDocuments)
	}
	if !w.yield(item, nil) {
		return errStopped
	}
	return nil
}

// openFile opens a listed file, which may have changed since. O_NONBLOCK keeps it from waiting for the writer of a named
// pipe that has taken the file's place.
func (s *Source) openFile(name string) (io.ReadCloser, error) {
	root, err := s.openRoot()
	if err != nil {
		return nil, describeRootError(err)
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, describeFileError(err)
	}
	info, err := f.Stat()
	var failed *source.Error
	switch {
	case err != nil:
		failed = describeFileError(err)
	case !info.Mode().IsRegular():
		failed = source.PermanentErrorf("is no regular file")
	case s.isOwnFile(info):
		failed = source.PermanentErrorf("is a file of the server's own")
	case info.Size() > s.maxFileSize:
		failed = errTooLarge(info.Size(), s.maxFileSize)
	default:
		return &boundedFile{File: f, remaining: s.maxFileSize, limit: s.maxFileSize}, nil
	}
	_ = f.Close()
	return nil, failed
}

// boundedFile is a file that fails when it turns out to be longer than the limit: it may grow while it is read.
type boundedFile struct {
	*os.File
	remaining, limit int64
}

// Read implements [io.Reader].
func (f *boundedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if f.remaining -= int64(n); f.remaining < 0 {
		return 0, errTooLarge(f.limit-f.remaining, f.limit)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return n, describeFileError(err)
	}
	return n, err
}

// WriteTo hides that of [os.File], which would go past Read.
func (f *boundedFile) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{f})
}

func errTooLarge(size, limit int64) *source.Error {
	return source.PermanentErrorf("the file has %d bytes, more than max_file_size (%d); raise it or exclude the file", size, limit)
}

// describeRootError returns the error for a folder that cannot be opened. It does not name the folder, which the
// configuration does.
func describeRootError(err error) *source.Error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return source.Errorf("the folder of the source does not exist; its documents stay as they are")
	case errors.Is(err, fs.ErrPermission):
		return source.PermanentErrorf("this server may not read the folder of the source; its documents stay as they are")
	}
	return source.Errorf("the folder of the source cannot be opened; its documents stay as they are")
}

// describeFolderError returns the error for a folder below the root.
func describeFolderError(folder string, err error) *source.Error {
	if folder == "." {
		return describeRootError(err)
	}
	name := source.ShortenID(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return source.Errorf("the folder %s disappeared while it was listed; nothing is deleted for it", name)
	case errors.Is(err, fs.ErrPermission):
		return source.PermanentErrorf("this server may not read the folder %s; allow it, or leave the folder out by exclude", name)
	}
	return source.Errorf("the folder %s cannot be read to its end; nothing is deleted for it", name)
}

// describeFileError returns the error for a file. The text of the system's error is not used: it may hold paths.
func describeFileError(err error) *source.Error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return source.Errorf("the file disappeared while it was read")
	case errors.Is(err, fs.ErrPermission):
		return source.PermanentErrorf("this server may not read the file")
	case errors.Is(err, syscall.ELOOP):
		return source.PermanentErrorf("is a link that leads to itself")
	case errors.Is(err, syscall.EIO):
		return source.Errorf("the disk reported an error while the file was read")
	}
	return source.PermanentErrorf("cannot be reached in the folder, e.g. because it is a link that leads out of it")
}

// mediaTypes are those that endings stand for, as far as a reader needs a hint.
var mediaTypes = map[string]string{
	".csv": "text/csv", ".htm": "text/html", ".html": "text/html", ".json": "application/json", ".md": "text/markdown", ".markdown": "text/markdown",
	".pdf": "application/pdf", ".txt": "text/plain", ".xml": "application/xml", ".yaml": "application/yaml", ".yml": "application/yaml",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".odt":  "application/vnd.oasis.opendocument.text",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}

// access returns who may read a file: what the first rule that fits it says.
func (p patterns) access(name string) document.Access {
	for _, rule := range p.rules {
		if rule.glob.fits(name) {
			return rule.access
		}
	}
	return document.Access{}
}
