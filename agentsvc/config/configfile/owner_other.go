//go:build !unix

package configfile

import (
	"io/fs"
	"os"
)

// keepOwner does nothing: files have no owner that matters here.
func keepOwner(*os.File, fs.FileInfo) error { return nil }
