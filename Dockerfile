# One static binary in an empty image, for a user without rights.
#
#   docker build -t lockstep .
#   make image                    the same from a binary built here: pulls nothing

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# An empty directory gives /data its owner: there is no chown in the image.
RUN CGO_ENABLED=0 go build -trimpath -o /lockstep ./cmd/lockstep && mkdir /data /secret

FROM scratch
COPY --from=build /lockstep /lockstep
COPY --from=build --chown=65532:65532 /data /data
COPY --from=build --chown=65532:65532 /secret /secret
USER 65532:65532
VOLUME /data
# Nodes of a cluster need LOCKSTEP_PEER_LISTEN=0.0.0.0:7379 besides, and a secret: see
# docker-compose.yml.
ENV LOCKSTEP_DATA=/data LOCKSTEP_LISTEN=0.0.0.0:6379
EXPOSE 6379 7379
# Ready means that the node reaches the leader, has applied its log and has a vote.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["/lockstep", "health"]
ENTRYPOINT ["/lockstep"]
