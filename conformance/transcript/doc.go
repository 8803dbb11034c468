// Package transcript holds one corpus of conversations with a Redis server and the words to replay them.
//
// A transcript is a text file: the commands a client sends, and below each the exact reply. The replies are golden values:
// the program in record/ takes them from a real redis-server 7.0.15 and writes them into the file; nobody types them.
// The same files are then replayed against anything that speaks the protocol, given as a [Target].
//
// Invariants:
//   - The notation of a reply is injective: two different replies on the wire never look alike in a file (see [Value]), except
//     where a modifier such as @shape says that a value cannot be equal by nature.
//   - Every file starts on an empty server, with connections of its own, and leaves the configuration as it found it.
//   - Every reply is accounted for: a reply too many is an error of the step that meets it, at the latest of the file's end.
//
// README.md describes the file format.
package transcript
