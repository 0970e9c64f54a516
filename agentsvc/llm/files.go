package llm

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// FileSupport describes the files that the models of a provider accept.
type FileSupport struct {
	// URISchemes are the schemes of addresses that the vendor fetches itself. If there are none, files are sent by
	// value only. Stoa never fetches an address of a caller for a model.
	URISchemes []string
	// MaxBytes is the largest file sent by value, in bytes.
	MaxBytes int64
	// MediaTypes are the accepted media types, as NormalizeMediaType returns them.
	MediaTypes []string
	// AllowUntypedURI reports that an address needs no media type.
	AllowUntypedURI bool
}

const mebibyte = 1 << 20

var (
	imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	videoTypes = []string{"video/mp4", "video/avi", "video/mov"}
	audioTypes = []string{"audio/wav", "audio/mp3"}
)

// fileSupportByProvider is the table of all providers, after the vendors' documentation.
var fileSupportByProvider = map[string]FileSupport{
	"openai":    {URISchemes: []string{"http", "https"}, MaxBytes: 20 * mebibyte, MediaTypes: imageTypes, AllowUntypedURI: true},
	"anthropic": {MaxBytes: 5 * mebibyte, MediaTypes: imageTypes},
	"gemini":    {URISchemes: []string{"gs", "http", "https"}, MaxBytes: 20 * mebibyte, MediaTypes: slices.Concat(imageTypes, videoTypes, audioTypes)},
	"ollama":    {MaxBytes: 20 * mebibyte, MediaTypes: imageTypes},
}

// FileSupportOf returns what the provider's models accept. An unknown provider accepts no files.
func FileSupportOf(provider string) FileSupport { return fileSupportByProvider[provider] }

// mediaTypeAliases maps other names of media types to those of the table.
var mediaTypeAliases = map[string]string{
	"image/jpg": "image/jpeg", "video/quicktime": "video/mov", "video/x-msvideo": "video/avi",
	"audio/mpeg": "audio/mp3", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav",
}

// NormalizeMediaType returns a media type in the form of the table: lower case, without parameters, aliases resolved.
func NormalizeMediaType(name string) string {
	name, _, _ = strings.Cut(name, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	if canonical := mediaTypeAliases[name]; canonical != "" {
		return canonical
	}
	return name
}

// CheckFiles returns an error with [agentsvc.CodeInvalid] for the first file in the users' messages that the models do not
// accept. It names the file and says what is accepted.
func (f FileSupport) CheckFiles(conversation []agentsvc.Entry) error {
	for _, e := range conversation {
		if e.Message == nil || e.Message.Role == agentsvc.RoleAgent {
			continue
		}
		for _, part := range e.Message.Parts {
			if part.File == nil {
				continue
			}
			if err := f.checkFile(*part.File); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFile is CheckFiles for one file.
func (f FileSupport) checkFile(file agentsvc.File) error {
	invalid := func(format string, args ...any) error {
		return agentsvc.NewInvalidError(fmt.Sprintf("file %q", file.Name), format, args...)
	}
	media := NormalizeMediaType(file.MediaType)
	switch {
	case len(f.MediaTypes) == 0:
		return invalid("this model takes no files")
	case media == "" && !(f.AllowUntypedURI && file.URI != ""):
		return invalid("needs a media type; this model takes %s", strings.Join(f.MediaTypes, ", "))
	case media != "" && !slices.Contains(f.MediaTypes, media):
		return invalid("is %q; this model takes %s", file.MediaType, strings.Join(f.MediaTypes, ", "))
	case file.URI == "" && int64(len(file.Bytes)) > f.MaxBytes:
		return invalid("is larger than the %d MB this model takes", f.MaxBytes/mebibyte)
	case file.URI == "" && len(file.Bytes) == 0:
		return invalid("is empty")
	case file.URI == "":
		return nil
	case len(f.URISchemes) == 0:
		return invalid("is an address; this model takes files by value only, as base64")
	}
	if u, err := url.Parse(file.URI); err != nil || !slices.Contains(f.URISchemes, u.Scheme) || u.Host == "" {
		return invalid("only %s addresses can be sent to this model", strings.Join(f.URISchemes, ", "))
	}
	return nil
}
