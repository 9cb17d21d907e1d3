// Our declarations of libibverbs against the distribution's, at compile time, where its headers are installed.
#include <gtest/gtest.h>

#include "wire/verbs/ibverbs.h"

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>

#define SAME_SIZE(ours, theirs) static_assert(sizeof(r2ccl::ibv::ours) == sizeof(theirs))
#define SAME_PLACE(ours, field, theirs, place)                                 \
  static_assert(offsetof(r2ccl::ibv::ours, field) == offsetof(theirs, place)); \
  static_assert(sizeof(r2ccl::ibv::ours::field) == sizeof(theirs::place))

SAME_SIZE(Gid, ibv_gid);
SAME_SIZE(Device, ibv_device);
SAME_PLACE(Device, name, ibv_device, name);
SAME_SIZE(Sge, ibv_sge);
SAME_PLACE(Sge, lkey, ibv_sge, lkey);
SAME_SIZE(SendRequest, ibv_send_wr);
SAME_PLACE(SendRequest, parts, ibv_send_wr, sg_list);
SAME_PLACE(SendRequest, part_count, ibv_send_wr, num_sge);
SAME_PLACE(SendRequest, opcode, ibv_send_wr, opcode);
SAME_PLACE(SendRequest, flags, ibv_send_wr, send_flags);
SAME_PLACE(SendRequest, remote_address, ibv_send_wr, wr.rdma.remote_addr);
SAME_PLACE(SendRequest, remote_key, ibv_send_wr, wr.rdma.rkey);
SAME_SIZE(ReceiveRequest, ibv_recv_wr);
SAME_SIZE(Completion, ibv_wc);
SAME_PLACE(Completion, status, ibv_wc, status);
SAME_PLACE(Completion, opcode, ibv_wc, opcode);
SAME_PLACE(Completion, bytes, ibv_wc, byte_len);
SAME_SIZE(QpInitAttr, ibv_qp_init_attr);
SAME_PLACE(QpInitAttr, cap, ibv_qp_init_attr, cap);
SAME_PLACE(QpInitAttr, type, ibv_qp_init_attr, qp_type);
SAME_SIZE(GlobalRoute, ibv_global_route);
SAME_PLACE(GlobalRoute, sgid_index, ibv_global_route, sgid_index);
SAME_PLACE(GlobalRoute, hop_limit, ibv_global_route, hop_limit);
SAME_PLACE(GlobalRoute, traffic_class, ibv_global_route, traffic_class);
SAME_SIZE(AddressAttr, ibv_ah_attr);
SAME_PLACE(AddressAttr, dlid, ibv_ah_attr, dlid);
SAME_PLACE(AddressAttr, sl, ibv_ah_attr, sl);
SAME_PLACE(AddressAttr, is_global, ibv_ah_attr, is_global);
SAME_PLACE(AddressAttr, port, ibv_ah_attr, port_num);
static_assert(sizeof(r2ccl::ibv::QpAttr) >= sizeof(ibv_qp_attr));
SAME_PLACE(QpAttr, state, ibv_qp_attr, qp_state);
SAME_PLACE(QpAttr, path_mtu, ibv_qp_attr, path_mtu);
SAME_PLACE(QpAttr, receive_psn, ibv_qp_attr, rq_psn);
SAME_PLACE(QpAttr, send_psn, ibv_qp_attr, sq_psn);
SAME_PLACE(QpAttr, remote_qp, ibv_qp_attr, dest_qp_num);
SAME_PLACE(QpAttr, access_flags, ibv_qp_attr, qp_access_flags);
SAME_PLACE(QpAttr, address, ibv_qp_attr, ah_attr);
SAME_PLACE(QpAttr, pkey_index, ibv_qp_attr, pkey_index);
SAME_PLACE(QpAttr, max_rd_atomic, ibv_qp_attr, max_rd_atomic);
SAME_PLACE(QpAttr, max_dest_rd_atomic, ibv_qp_attr, max_dest_rd_atomic);
SAME_PLACE(QpAttr, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
SAME_PLACE(QpAttr, port, ibv_qp_attr, port_num);
SAME_PLACE(QpAttr, timeout, ibv_qp_attr, timeout);
SAME_PLACE(QpAttr, retry_count, ibv_qp_attr, retry_cnt);
SAME_PLACE(QpAttr, rnr_retry, ibv_qp_attr, rnr_retry);
static_assert(sizeof(r2ccl::ibv::PortAttr) >= sizeof(ibv_port_attr));
SAME_PLACE(PortAttr, state, ibv_port_attr, state);
SAME_PLACE(PortAttr, active_mtu, ibv_port_attr, active_mtu);
SAME_PLACE(PortAttr, lid, ibv_port_attr, lid);
SAME_PLACE(PortAttr, link_layer, ibv_port_attr, link_layer);
SAME_SIZE(AsyncEvent, ibv_async_event);
SAME_PLACE(AsyncEvent, type, ibv_async_event, event_type);
SAME_SIZE(ContextOps, ibv_context_ops);
SAME_PLACE(ContextOps, poll_cq, ibv_context_ops, poll_cq);
SAME_PLACE(ContextOps, request_notification, ibv_context_ops, req_notify_cq);
SAME_PLACE(ContextOps, post_send, ibv_context_ops, post_send);
SAME_PLACE(ContextOps, post_receive, ibv_context_ops, post_recv);
SAME_SIZE(Context, ibv_context);
SAME_PLACE(Context, async_fd, ibv_context, async_fd);
SAME_SIZE(Channel, ibv_comp_channel);
SAME_PLACE(Channel, fd, ibv_comp_channel, fd);
SAME_SIZE(Mr, ibv_mr);
SAME_PLACE(Mr, lkey, ibv_mr, lkey);
SAME_PLACE(Qp, number, ibv_qp, qp_num);
SAME_PLACE(Qp, context, ibv_qp, context);
SAME_PLACE(Cq, context, ibv_cq, context);

static_assert(r2ccl::ibv::kPortActive == IBV_PORT_ACTIVE &&
              r2ccl::ibv::kLinkLayerInfiniband == IBV_LINK_LAYER_INFINIBAND);
static_assert(r2ccl::ibv::kOpRead == IBV_WR_RDMA_READ && r2ccl::ibv::kRemoteRead == IBV_ACCESS_REMOTE_READ);
static_assert(r2ccl::ibv::kOpSend == IBV_WR_SEND && r2ccl::ibv::kSignaled == IBV_SEND_SIGNALED);
static_assert(r2ccl::ibv::kQpTypeRc == IBV_QPT_RC && r2ccl::ibv::kStateInit == IBV_QPS_INIT);
static_assert(r2ccl::ibv::kStateReadyToReceive == IBV_QPS_RTR && r2ccl::ibv::kStateReadyToSend == IBV_QPS_RTS);
static_assert(r2ccl::ibv::kStateError == IBV_QPS_ERR && r2ccl::ibv::kSetState == IBV_QP_STATE);
static_assert(r2ccl::ibv::kSetAccess == IBV_QP_ACCESS_FLAGS && r2ccl::ibv::kSetPkeyIndex == IBV_QP_PKEY_INDEX);
static_assert(r2ccl::ibv::kSetPort == IBV_QP_PORT && r2ccl::ibv::kSetAddress == IBV_QP_AV);
static_assert(r2ccl::ibv::kSetPathMtu == IBV_QP_PATH_MTU && r2ccl::ibv::kSetTimeout == IBV_QP_TIMEOUT);
static_assert(r2ccl::ibv::kSetRetryCount == IBV_QP_RETRY_CNT && r2ccl::ibv::kSetRnrRetry == IBV_QP_RNR_RETRY);
static_assert(r2ccl::ibv::kSetReceivePsn == IBV_QP_RQ_PSN && r2ccl::ibv::kSetSendPsn == IBV_QP_SQ_PSN);
static_assert(r2ccl::ibv::kSetMaxRdAtomic == IBV_QP_MAX_QP_RD_ATOMIC);
static_assert(r2ccl::ibv::kSetMaxDestRdAtomic == IBV_QP_MAX_DEST_RD_ATOMIC);
static_assert(r2ccl::ibv::kSetMinRnrTimer == IBV_QP_MIN_RNR_TIMER && r2ccl::ibv::kSetRemoteQp == IBV_QP_DEST_QPN);
static_assert(r2ccl::ibv::kEventCqError == IBV_EVENT_CQ_ERR && r2ccl::ibv::kEventQpFatal == IBV_EVENT_QP_FATAL);
static_assert(r2ccl::ibv::kEventQpRequestError == IBV_EVENT_QP_REQ_ERR);
static_assert(r2ccl::ibv::kEventQpAccessError == IBV_EVENT_QP_ACCESS_ERR);
static_assert(r2ccl::ibv::kEventDeviceFatal == IBV_EVENT_DEVICE_FATAL);
static_assert(r2ccl::ibv::kEventPortActive == IBV_EVENT_PORT_ACTIVE);
static_assert(r2ccl::ibv::kEventPortError == IBV_EVENT_PORT_ERR);
static_assert(r2ccl::ibv::kEventLidChange == IBV_EVENT_LID_CHANGE);
static_assert(r2ccl::ibv::kEventGidChange == IBV_EVENT_GID_CHANGE);
#endif

namespace r2ccl {
namespace {

TEST(VerbsAbi, ALibraryThatIsMissingIsOneLineWithThePackage) {
  ibv::Library library;
  Status status = ibv::Library::Open("libr2ccl-has-no-such-library.so", &library);
  EXPECT_NE(status.message().find("install libibverbs1"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("libr2ccl-has-no-such-library.so"), std::string::npos) << status.message();
}

TEST(VerbsAbi, ALibraryWithoutTheCallsIsRefusedByTheFirstThatIsMissing) {
  ibv::Library library;
  Status status = ibv::Library::Open("libm.so.6", &library);
  EXPECT_EQ(status.message(), "libm.so.6 has no ibv_fork_init; install a current libibverbs1 (rdma-core)");
}

}  // namespace
}  // namespace r2ccl
