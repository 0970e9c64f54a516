package llm

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// FileSupport says which files the models of a provider take.
type FileSupport struct {
	// URISchemes are the schemes of the addresses that the provider fetches for its models; without any, files are sent by
	// value alone.
	URISchemes []string
	// MaxBytes is the size of a file that is sent by value, in bytes.
	MaxBytes int64
	// MediaTypes are the media types.
	MediaTypes []string
	// AllowUntypedURI says that an address needs no media type.
	AllowUntypedURI bool
}

const mebibyte = 1 << 20

var (
	imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	videoTypes = []string{"video/mp4", "video/avi", "video/mov"}
	audioTypes = []string{"audio/wav", "audio/mp3"}
)

// fileSupportByProvider is what each provider takes.
var fileSupportByProvider = map[string]FileSupport{
	"openai":    {URISchemes: []string{"http", "https"}, MaxBytes: 20 * mebibyte, MediaTypes: imageTypes, AllowUntypedURI: true},
	"anthropic": {MaxBytes: 5 * mebibyte, MediaTypes: imageTypes},
	"gemini":    {URISchemes: []string{"gs", "http", "https"}, MaxBytes: 20 * mebibyte, MediaTypes: slices.Concat(imageTypes, videoTypes, audioTypes)},
	"ollama":    {MaxBytes: 20 * mebibyte, MediaTypes: imageTypes},
}

// FileSupportOf returns what the models of a provider take: no files at all where it is unknown.
func FileSupportOf(provider string) FileSupport { return fileSupportByProvider[provider] }

// mediaTypeAliases are other names of media types.
var mediaTypeAliases = map[string]string{
	"image/jpg": "image/jpeg", "video/quicktime": "video/mov", "video/x-msvideo": "video/avi",
	"audio/mpeg": "audio/mp3", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav",
}

// NormalizeMediaType returns a media type as the tables of providers name it: in lower case, without parameters.
func NormalizeMediaType(name string) string {
	name, _, _ = strings.Cut(name, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	if canonical := mediaTypeAliases[name]; canonical != "" {
		return canonical
	}
	return name
}

// CheckFiles returns an [agentsvc.InvalidError] that names the first file of the users' messages which the models do not
// take, and says what they do.
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
