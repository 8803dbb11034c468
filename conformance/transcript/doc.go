// Package transcript holds a corpus of conversations with a Redis server, and replays them.
//
// A transcript is a text file. It has the commands that a client sends, and below each command the exact reply. The replies are
// golden values: the program in record/ gets them from a real redis-server 7.0.15 and writes them into the file; nobody types them.
// The files can be replayed against any server that speaks the protocol, given as a [Target].
//
// Invariants:
//   - The notation of a reply is injective: two different replies on the wire never look alike in a file (see [Value]). The only
//     exceptions are modifiers such as @shape, for values that can never be equal.
//   - Every file starts on an empty server, with connections of its own, and leaves the configuration as it found it.
//   - Every reply is accounted for. A reply too many is an error of the step that meets it, or at the latest of the end of the file.
//
// README.md describes the file format.
package transcript
