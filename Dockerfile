# One static binary in an empty image, for a user without rights.
#
#   docker build -t lockstep .
#   make image                    the same from a binary built here: pulls nothing
#   docker buildx build --platform linux/amd64,linux/arm64 -t REGISTRY/lockstep --push .

# The compiler runs on this machine's architecture, whatever the image's is. Without BuildKit nothing sets these variables.
FROM --platform=${BUILDPLATFORM:-linux} golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# An empty directory gives /data its owner: there is no chown in the image.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w -buildid=" -o /lockstep ./cmd/lockstep && mkdir /data /secret

FROM scratch
LABEL org.opencontainers.image.title=lockstep org.opencontainers.image.version=0.1.0+dev
COPY --from=build /lockstep /lockstep
COPY --from=build --chown=65532:65532 /data /data
COPY --from=build --chown=65532:65532 /secret /secret
USER 65532:65532
VOLUME /data
# Nodes of a cluster need LOCKSTEP_PEER_LISTEN=0.0.0.0:7379 besides, and a secret: see
# docker-compose.yml.
# HTTP shows strangers /healthz, /readyz and /metrics. Other pages want a user with a password
# (protected mode); so does /metrics with LOCKSTEP_HTTP_METRICS_AUTH.
ENV LOCKSTEP_DATA=/data LOCKSTEP_LISTEN=0.0.0.0:6379 LOCKSTEP_HTTP_LISTEN=0.0.0.0:8379
EXPOSE 6379 7379 8379
# Ready means that the node reaches the leader, has applied its log and has a vote.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["/lockstep", "health"]
ENTRYPOINT ["/lockstep"]
